/* Search from a folder: browsers start no worker from file://, so its script runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      const address = String(url).replaceAll("&", "&amp;").replaceAll('"', "&quot;");
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true }));
      inner.document.open();
      inner.document.write(
        "<!DOCTYPE html><script>postMessage = (data) => parent.postMessage(data, '*');" +
          "importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((resolve, reject) => {" +
          "const script = document.createElement('script'); script.src = url;" +
          "script.onload = resolve; script.onerror = reject; document.body.append(script); })));" +
          `</script><body><script src="${address}"></script></body>`
      );
      inner.document.close();
      this.listener = (event) => {
        const message = new MessageEvent("message", { data: event.data });
        if (event.source === inner) this.dispatchEvent(message);
      };
      window.addEventListener("message", this.listener);
    }

    postMessage(data) {
      const message = () => new MessageEvent("message", { data });
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(message()));
    }

    set onmessage(handler) {
      this.addEventListener("message", handler);
    }

    terminate() {
      window.removeEventListener("message", this.listener);
      this.frame.remove();
    }
  };
}
