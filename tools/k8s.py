"""Checks the Kubernetes manifests: each against the schemas of Kubernetes, all manifests of a directory against each other.

A schema detects unknown keys. It does not detect dangling references, such as a selector without pods or a volume that is not
mounted, pods without a NetworkPolicy, or secrets that all users can read. tests/node/kubernetes.rs checks the Orlog configuration in the ConfigMaps.

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

# Oldest version with all features of the manifests (the action `sleep` of preStop), and the newest version with a schema.
VERSIONS = ("1.30", "1.37")
# API groups of custom resources, which have no schema in the package.
WITHOUT_SCHEMA = {"monitoring.coreos.com/v1"}
# Manifests that all directories use.
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

    def check(self, manifest):
        """Returns the violation of a manifest, or None."""
        kind = (manifest.get("apiVersion"), manifest.get("kind"))
        if kind not in self.names:
            return f"unknown kind {kind[1]} in {kind[0]}"
        if kind not in self.compiled:
            schema = {"$ref": f"#/$defs/{self.names[kind]}", "$defs": self.definitions}
            self.compiled[kind] = fastjsonschema.compile(schema)
        try:
            self.compiled[kind](manifest)
        except fastjsonschema.JsonSchemaValueException as violation:
            return violation.message
        return None


def read(path):
    # YAML 1.1, as in kubectl: 0440 is octal, `on` is true.
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    try:
        return [(path, manifest) for manifest in yaml.load_all(path) if manifest is not None]
    except YAMLError as violation:
        sys.exit(f"k8s: {path}: invalid YAML: {violation}")


def label(path, manifest):
    return f"{path}: {manifest.get('kind')} {manifest.get('metadata', {}).get('name')}"


def dangling(manifests):
    """Returns the dangling references of manifests that are applied together."""
    names = {(manifest["kind"], manifest["metadata"]["name"]) for _, manifest in manifests}
    pods = [manifest["spec"]["template"]["metadata"]["labels"] for _, manifest in manifests if manifest["kind"] in WORKLOADS]
    for path, manifest in manifests:
        kind, spec = manifest["kind"], manifest.get("spec", {})
        missing = []
        if kind in WORKLOADS:
            missing += [("ConfigMap", volume["configMap"]["name"]) for volume in volumes(spec) if "configMap" in volume]
            yield from (f"{label(path, manifest)}: {violation}" for violation in unmounted(spec))
        if kind == "StatefulSet":
            missing.append(("Service", spec["serviceName"]))
        if kind == "HorizontalPodAutoscaler":
            missing.append((spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]))
        for name in missing:
            if name not in names:
                yield f"{label(path, manifest)}: unknown {name[0]} {name[1]}"
        if kind in WORKLOADS:
            labels = spec["template"]["metadata"]["labels"]
            if not any(restricts(policy, labels) for _, policy in manifests):
                yield f"{label(path, manifest)}: no NetworkPolicy restricts its ingress and egress"
            for volume in volumes(spec):
                if volume.get("secret", {"defaultMode": 0}).get("defaultMode", 0o644) & 0o007:
                    yield f"{label(path, manifest)}: all users can read the secret {volume['name']}; set defaultMode: 0440"
        for selector in selectors(kind, spec):
            if not any(selector.items() <= labels.items() for labels in pods):
                yield f"{label(path, manifest)}: no pod has the labels {selector}"


def restricts(policy, labels):
    """Returns whether a NetworkPolicy selects the pods with these labels and names the peers of every connection."""
    spec = policy.get("spec", {})
    return (
        policy["kind"] == "NetworkPolicy"
        and spec["podSelector"].get("matchLabels", {}).items() <= labels.items()
        and set(spec["policyTypes"]) == {"Ingress", "Egress"}
        and all(is_limited(rule.get("from")) for rule in spec.get("ingress", []))
        and all(is_limited(rule.get("to")) for rule in spec.get("egress", []))
    )


def is_limited(peers):
    """Returns whether a rule names its peers: without a list, or with an empty peer, it accepts all of them."""
    return bool(peers) and all(any(peer.values()) for peer in peers)


def volumes(spec):
    return spec["template"]["spec"].get("volumes", [])


def unmounted(spec):
    declared = {volume["name"] for volume in volumes(spec)}
    declared |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
    mounted = {mount["name"] for container in spec["template"]["spec"]["containers"] for mount in container["volumeMounts"]}
    yield from (f"unknown volume {name}" for name in sorted(mounted - declared))
    yield from (f"the volume {name} is not mounted" for name in sorted(declared - mounted))


def selectors(kind, spec):
    if kind == "Service":
        return [spec["selector"]]
    if kind == "NetworkPolicy":
        return [spec["podSelector"].get("matchLabels", {})]
    if kind == "PodDisruptionBudget":
        return [spec["selector"]["matchLabels"]]
    if kind in WORKLOADS:
        spread = spec["template"]["spec"].get("topologySpreadConstraints", [])
        return [spec["selector"]["matchLabels"], *(constraint["labelSelector"]["matchLabels"] for constraint in spread)]
    return []


def main():
    found = {path: read(path) for path in sorted(MANIFESTS.rglob("*.yaml"))}
    manifests = [each for file in found.values() for each in file]
    problems = []
    for version in VERSIONS:
        schemas = Schemas(version)
        for path, manifest in manifests:
            violation = None if manifest.get("apiVersion") in WITHOUT_SCHEMA else schemas.check(manifest)
            if violation:
                problems.append(f"{label(path, manifest)}: {violation} (Kubernetes {version})")
    # References are checked only if all manifests are valid.
    if not problems:
        shared = found[MANIFESTS / SHARED]
        for directory in sorted({path.parent for path in found} - {MANIFESTS}):
            together = [each for path, file in found.items() if path.parent == directory for each in file]
            problems += dangling(shared + together)
    for problem in problems:
        print(f"k8s: {problem}", file=sys.stderr)
    if not manifests or problems:
        sys.exit(1)
    print(f"k8s: {len(manifests)} manifests in {len(found)} files are valid for Kubernetes {' and '.join(VERSIONS)}")


if __name__ == "__main__":
    main()
