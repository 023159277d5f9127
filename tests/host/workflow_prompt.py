"""A saved workflow in the form that /prompt takes."""

from __future__ import annotations

from typing import Any

NOTES = {"MarkdownNote", "Note"}
BYPASSED = 4  # a node's mode


def prompt_of(workflow: dict[str, Any]) -> dict[str, Any]:
    """The nodes by id with their widgets' values and links; links through bypassed nodes go on to what has their type."""
    nodes = {node["id"]: node for node in workflow["nodes"]}
    links = {link[0]: (link[1], link[2], link[5]) for link in workflow["links"]}

    def source(link: int) -> list[Any] | None:
        node, output, type = links[link]
        if nodes[node]["mode"] != BYPASSED:
            return [str(node), output]
        passed = next((entry["link"] for entry in nodes[node]["inputs"] if entry["type"] == type and entry["link"]), None)
        return source(passed) if passed else None

    return {
        str(node["id"]): {"class_type": node["type"], "inputs": _values(node) | _linked(node, source)}
        for node in workflow["nodes"]
        if node["type"] not in NOTES and node["mode"] != BYPASSED
    }


def _values(node: dict[str, Any]) -> dict[str, Any]:
    return dict(node.get("widgets_values_named", {}))


def _linked(node: dict[str, Any], source: Any) -> dict[str, Any]:
    found = {entry["name"]: source(entry["link"]) for entry in node.get("inputs", []) if entry.get("link")}
    return {name: place for name, place in found.items() if place}
