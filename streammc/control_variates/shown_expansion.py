"""What control variates show of themselves: a line of text, and a table in a notebook."""

from __future__ import annotations

from typing import Any

from streammc.html_repr import Shown
from streammc.likelihood.tempered import split_fingerprint


class ShownExpansion(Shown):
    """What control variates show: sizes, centre and certificate."""

    def __repr__(self) -> str:
        """Return the sizes and the distance from the mode."""
        cv: Any = self
        decrement = cv.certificate.decrement
        far = "" if decrement is None else f", {decrement:.2g} posterior sd from the mode"
        return f"<ControlVariates: {cv.dim} parameters, {cv.n_rows} rows{far}>"

    def _shown(self) -> tuple[str, dict[str, Any]]:
        """Return sizes, certificate and centre for a notebook."""
        cv: Any = self
        certificate, sd = cv.certificate, cv.posterior_sd()
        decrement = certificate.decrement
        far = "no pass" if decrement is None else f"{decrement:.2g} posterior sd from the mode"
        converged = "" if certificate.converged else ", not converged"
        names = [
            f"log {label}" if label in certificate.logarithms else label for label in cv.labels
        ]
        centre = [
            f"{name} {value:.4g} +- {spread:.2g}"
            for name, value, spread in zip(names, cv.theta_star, sd, strict=True)
        ]
        return "ControlVariates", {
            "rows": cv.n_rows,
            "order": cv.order,
            "theta_star, Laplace sd": centre,
            "certificate": f"{far}{converged}",
            "passes": certificate.passes,
            "temperature": None if cv.temperature == 1.0 else cv.temperature,
            "warnings": list(certificate.warnings) or None,
            "store": split_fingerprint(cv.fingerprint)[0][:12],
            "fingerprint": cv.digest()[:12],
        }
