"""Builds the documentation as a site in target/site with mdBook, and checks every link between its pages.

    python3 tools/site.py [--mdbook .tools/mdbook/bin/mdbook] [--check]

docs/SUMMARY.md lists the pages. A README.md in it brings the other pages of its directory. Links to files that are not pages, for
example examples/orders/order.saga.yaml, lead to copies of these files. With --check, nothing is built: the script only checks that
every page of docs/ and of examples/ is in the summary.
"""
import argparse, html.parser, os, posixpath, re, shutil, subprocess, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGE, SITE = ROOT / "target/site-source", ROOT / "target/site"
ENTRY = re.compile(r"^(- )?\[(.+)\]\((.+)\)$")

BOOK = """[book]
title = "Orlog"
language = "en"
src = "."

[build]
build-dir = "../site"
create-missing = false

[output.html]
no-section-label = true
[output.html.fold]
enable = true
[output.html.search]
limit-results = 20
[output.html.print]
enable = false
"""


def tracked():
    """Returns the files of the repository, also new ones that are not ignored."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    # The web UI is part of the product, not a page.
    return sorted(file for file in set(files) if (ROOT / file).is_file() and not file.startswith("ui/"))


def title(file):
    """Returns the first heading of a page."""
    for line in (ROOT / file).read_text().splitlines():
        if line.startswith("# "):
            return re.sub(r"[\[\]]", "", line[2:].strip())
    return Path(file).stem


def summary(files):
    """Returns the lines of the summary with all pages, relative to the root of the repository, and the listed pages."""
    lines, listed = [], []
    entries = (ROOT / "docs/SUMMARY.md").read_text().splitlines()
    own = {posixpath.normpath(f"docs/{match[3]}") for match in map(ENTRY.match, entries) if match}

    def children(readme):
        directory = posixpath.dirname(readme)
        for file in files:
            if posixpath.dirname(file) == directory and file.endswith(".md") and file != readme and file not in own:
                lines.append(f"  - [{title(file)}]({file})")
                listed.append(file)

    for line in entries:
        match = ENTRY.match(line)
        if not match:
            lines.append(line)
            continue
        page = posixpath.normpath(f"docs/{match[3]}")
        lines.append(f"{match[1] or ''}[{match[2]}]({page})")
        listed.append(page)
        if page.startswith("docs/") and page.endswith("/README.md"):
            children(page)
    examples = [file for file in files if re.fullmatch(r"examples/[^/]+/README\.md", file)]
    lines += ["", "# Examples", "", *(f"- [{title(file)}]({file})" for file in examples)]
    return lines, [*listed, *examples]


class Links(html.parser.HTMLParser):
    """Collects the targets and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.anchors.add(attributes["id"])
        for name in ("href", "src"):
            if attributes.get(name):
                self.targets.append(attributes[name])


def broken_links():
    pages = {page: Links(page.read_text()) for page in SITE.rglob("*.html")}
    for page, links in sorted(pages.items()):
        for target in links.targets:
            if re.match(r"[a-z]+:|//", target) or page.name in ("404.html", "toc.html"):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if file.is_dir() and (file / "index.html").exists():
                file /= "index.html"
            if not file.exists():
                yield f"{page.relative_to(SITE)}: {target} does not exist"
            elif anchor and file in pages and anchor not in pages[file].anchors:
                yield f"{page.relative_to(SITE)}: {target} has no such anchor"


def with_index(text):
    """Replaces links to README.md: a site shows the page of a directory as its index."""
    return re.sub(r"(\]\((?:[^()\s]*/)?)README\.md", r"\1index.md", text)


def build(mdbook, files, lines):
    for directory in (STAGE, SITE):
        shutil.rmtree(directory, ignore_errors=True)
    for file in files:
        target = STAGE / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.endswith(".md"):
            target = target.with_name(target.name.replace("README.md", "index.md"))
            target.write_text(with_index((ROOT / file).read_text()))
        else:
            shutil.copy(ROOT / file, target)
    (STAGE / "docs/SUMMARY.md").unlink()
    (STAGE / "SUMMARY.md").write_text(with_index("\n".join(lines)) + "\n")
    (STAGE / "book.toml").write_text(BOOK)
    subprocess.run([mdbook, "build", str(STAGE)], check=True)


def main():
    parser = argparse.ArgumentParser(description="Build the documentation as a site")
    parser.add_argument("--mdbook", default=str(ROOT / ".tools/mdbook/bin/mdbook"))
    parser.add_argument("--check", action="store_true", help="only check that all pages are in the summary")
    options = parser.parse_args()
    files = tracked()
    lines, listed = summary(files)
    missing = [file for file in listed if file not in files]
    pages = [file for file in files if re.match(r"docs/.*\.md$", file)]
    unlisted = sorted(set(pages) - set(listed) - {"docs/SUMMARY.md"})
    if missing or unlisted:
        sys.exit(f"site: docs/SUMMARY.md names missing pages {missing}, or lacks {unlisted}")
    if options.check:
        return
    build(options.mdbook, files, lines)
    if broken := list(broken_links()):
        sys.exit("\n".join(["site: broken links", *broken]))
    print(f"site: {len(listed)} pages in {SITE.relative_to(ROOT)}, all links lead to a page or file")


if __name__ == "__main__":
    main()
