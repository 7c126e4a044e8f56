"""Events of MkDocs: pages that are added to the site, and what is changed in the others."""

from __future__ import annotations

import json

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_api import api_pages, overview_links, without_roles
from site_commands import with_options
from site_sections import llms_text, navigation, section_indexes
from site_sources import linked_sources, rewritten_links, source_page, unescaped_pipes

from streammc.cli.jobs.job_file import job_schema

SCHEMA = "reference/job.schema.json"
LLMS = "llms.txt"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add indexes of sections, the Python reference, linked source files and the job schema."""
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    made = api_pages() | section_indexes(pages)
    made |= {source_page(path): text for path, text in linked_sources(pages).items()}
    made[SCHEMA] = json.dumps(job_schema(), indent=2) + "\n"
    made[LLMS] = llms_text({**pages, **made}, config.site_description or "")
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    config.nav = navigation({**pages, **made})
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page as the site shows it: generated parts filled in, links to sources rewritten."""
    uri = page.file.src_uri
    if uri == "reference/command-line.md":
        markdown = with_options(markdown)
    elif uri == "reference/python.md":
        markdown += overview_links()
    elif uri == "reference/job.md":
        markdown += "\nAs a file: [job.schema.json](job.schema.json).\n"
    return unescaped_pipes(rewritten_links(markdown, uri))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the HTML of a page of docstrings without the marks of another generator."""
    return without_roles(html) if page.file.src_uri.startswith("reference/api/") else html
