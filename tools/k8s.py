"""Checks the Kubernetes manifests: each against the schemas of Kubernetes, all manifests of a directory against each other.

A schema finds a key that is misspelt. It does not find dangling names: a selector that selects no pod, a volume that is not
mounted. tests/kubernetes.rs checks the Orlog configuration in the ConfigMaps.

Usage: k8s.py TOOLS MANIFESTS
"""

import json
import sys
import zipfile
from pathlib import Path

TOOLS, MANIFESTS = (Path(argument) for argument in sys.argv[1:])
sys.path.insert(0, str(TOOLS))

import fastjsonschema  # noqa: E402
from ruamel.yaml import YAML, YAMLError  # noqa: E402

# The oldest that knows everything in the manifests (the action `sleep` of preStop), and the newest there is a schema for.
VERSIONS = ("1.30", "1.37")
# Kinds that others bring; there is no schema of theirs here.
FOREIGN = {"monitoring.coreos.com/v1"}
# Shared by all directories.
SHARED = "shared.yaml"
WORKLOADS = {"Deployment", "StatefulSet"}


class Schemas:
    """Schemas of one Kubernetes version. They reject unknown keys."""

    def __init__(self, version):
        (wheel,) = TOOLS.glob("kubernetes_validate-*.whl")
        path = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
        text = zipfile.ZipFile(wheel).read(path).decode()
        self.definitions = json.loads(text.replace("/api/_definitions.json#", "#"))["$defs"]
        self.names = {}
        for name, schema in self.definitions.items():
            for kind in schema.get("x-kubernetes-group-version-kind", []):
                group = kind["group"] + "/" if kind["group"] else ""
                self.names[group + kind["version"], kind["kind"]] = name
        self.compiled = {}

    def check(self, thing):
        """Says what is wrong with a thing, or nothing."""
        kind = (thing.get("apiVersion"), thing.get("kind"))
        if kind not in self.names:
            return f"there is no kind {kind[1]} in {kind[0]}"
        if kind not in self.compiled:
            schema = {"$ref": f"#/$defs/{self.names[kind]}", "$defs": self.definitions}
            self.compiled[kind] = fastjsonschema.compile(schema)
        try:
            self.compiled[kind](thing)
        except fastjsonschema.JsonSchemaValueException as wrong:
            return wrong.message
        return None


def read(path):
    # As kubectl reads: 0440 is a number to the base 8, `on` is true.
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    try:
        return [(path, thing) for thing in yaml.load_all(path) if thing is not None]
    except YAMLError as wrong:
        sys.exit(f"k8s: {path} is no YAML: {wrong}")


def called(path, thing):
    return f"{path}: {thing.get('kind')} {thing.get('metadata', {}).get('name')}"


def dangling(things):
    """Says which names lead nowhere among the things that are applied together."""
    names = {(thing["kind"], thing["metadata"]["name"]) for _, thing in things}
    pods = [thing["spec"]["template"]["metadata"]["labels"] for _, thing in things if thing["kind"] in WORKLOADS]
    for path, thing in things:
        kind, spec = thing["kind"], thing.get("spec", {})
        missing = []
        if kind in WORKLOADS:
            missing += [("ConfigMap", volume["configMap"]["name"]) for volume in volumes(spec) if "configMap" in volume]
            yield from (f"{called(path, thing)}: {wrong}" for wrong in unmounted(spec))
        if kind == "StatefulSet":
            missing.append(("Service", spec["serviceName"]))
        if kind == "HorizontalPodAutoscaler":
            missing.append((spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]))
        for name in missing:
            if name not in names:
                yield f"{called(path, thing)}: there is no {name[0]} {name[1]}"
        for wanted in selectors(kind, spec):
            if not any(wanted.items() <= labels.items() for labels in pods):
                yield f"{called(path, thing)}: no pod has the labels {wanted}"


def volumes(spec):
    return spec["template"]["spec"].get("volumes", [])


def unmounted(spec):
    there = {volume["name"] for volume in volumes(spec)}
    there |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
    mounted = {mount["name"] for container in spec["template"]["spec"]["containers"] for mount in container["volumeMounts"]}
    yield from (f"there is no volume {name}" for name in sorted(mounted - there))
    yield from (f"the volume {name} is not mounted" for name in sorted(there - mounted))


def selectors(kind, spec):
    if kind == "Service":
        return [spec["selector"]]
    if kind == "PodDisruptionBudget":
        return [spec["selector"]["matchLabels"]]
    if kind in WORKLOADS:
        spread = spec["template"]["spec"].get("topologySpreadConstraints", [])
        return [spec["selector"]["matchLabels"], *(constraint["labelSelector"]["matchLabels"] for constraint in spread)]
    return []


def main():
    found = {path: read(path) for path in sorted(MANIFESTS.rglob("*.yaml"))}
    things = [each for file in found.values() for each in file]
    problems = []
    for version in VERSIONS:
        schemas = Schemas(version)
        for path, thing in things:
            wrong = None if thing.get("apiVersion") in FOREIGN else schemas.check(thing)
            if wrong:
                problems.append(f"{called(path, thing)}: {wrong} (Kubernetes {version})")
    # Where something has not even its shape, it is no use to follow its names.
    if not problems:
        shared = found[MANIFESTS / SHARED]
        for directory in sorted({path.parent for path in found} - {MANIFESTS}):
            together = [each for path, file in found.items() if path.parent == directory for each in file]
            problems += dangling(shared + together)
    for problem in problems:
        print(f"k8s: {problem}", file=sys.stderr)
    if not things or problems:
        sys.exit(1)
    print(f"k8s: {len(things)} things in {len(found)} files are well-formed for Kubernetes {' and '.join(VERSIONS)}")


if __name__ == "__main__":
    main()
