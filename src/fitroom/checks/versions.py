"""Versions that do not go together, packages that overwrite each other, and settings that bring in Keras 2."""

from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from fitroom.checks.finding import Finding
from fitroom.checks.machine import Machine

_OF_BACKEND = {
    "jax": ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin"),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly"),
    "torch": ("torch",),
}
_SAME_MODULE = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly", "tensorflow-macos")


def check_versions(machine: Machine) -> Iterator[Finding]:
    """Check what Keras, fitroom and the backend require of each other, as their own metadata say."""
    packages = machine.packages
    names = ("fitroom", "keras", *_OF_BACKEND[machine.backend])
    installed = {name: version for name in names if (version := packages.version(name))}
    unmet = [told for name in installed for told in _list_unmet(machine, name)]
    listed = ", ".join(f"{name} {version}" for name, version in installed.items() if name != "fitroom")
    if unmet:
        yield Finding(
            status="warning",
            name="versions",
            found="versions that do not go together: "
            + "; ".join(f"{who} needs {what}, {has}" for who, what, has in unmet),
            fix="pip install " + " ".join(f"'{what}'" for _, what, _ in unmet),
            facts={"installed": installed, "unmet": [list(each) for each in unmet]},
        )
    else:
        yield Finding(status="pass", name="versions", found=listed, facts={"installed": installed, "unmet": []})
    yield from _check_same_module(machine)
    yield from _check_nvidia_packages(machine)
    yield from _check_library_path(machine)
    yield from check_legacy_keras(machine)


def _list_unmet(machine: Machine, name: str) -> Iterator[tuple[str, str, str]]:
    """The requirements of a package that are installed in another version: who, what, and what is there."""
    for text in machine.packages.installed[name].requires or ():
        try:
            needed = Requirement(text)
        except InvalidRequirement:
            continue
        if needed.marker and not needed.marker.evaluate({"extra": ""}):
            continue
        version = machine.packages.version(needed.name.lower().replace("_", "-").replace(".", "-"))
        if version and not needed.specifier.contains(version, prereleases=True):
            yield name, f"{needed.name}{needed.specifier}", f"{version} is installed"


def _check_same_module(machine: Machine) -> Iterator[Finding]:
    both = {name: version for name in _SAME_MODULE if (version := machine.packages.version(name))}
    if len(both) > 1:
        listed = " and ".join(f"{name} {version}" for name, version in both.items())
        yield Finding(
            status="warning",
            name="two TensorFlows",
            found=f"{listed} are both installed into the same folder: which files are there depends on the order",
            fix=f"pip uninstall -y {' '.join(both)} && pip install 'tensorflow[and-cuda]'",
            facts={"installed": both},
        )


def _check_nvidia_packages(machine: Machine) -> Iterator[Finding]:
    for first, second, file in machine.packages.shared_files():
        yield Finding(
            status="warning",
            name="clashing libraries",
            found=f"{first} and {second} both bring {file}: one has overwritten the other's",
            fix="give each framework an environment of its own: python -m venv ...",
            facts={"packages": [first, second], "file": file},
        )


def _check_library_path(machine: Machine) -> Iterator[Finding]:
    """Libraries in LD_LIBRARY_PATH are taken before those of the same name that the wheels bring."""
    packages = machine.packages
    own = [
        Path(str(packages.installed[name].locate_file(file)))
        for name in packages.having("nvidia-")
        for file in packages.installed[name].files or ()
        if ".so" in file.name
    ]
    folders = {str(path.resolve().parent) for path in own}
    names = {path.name.partition(".so")[0] for path in own}
    for folder in filter(None, machine.environment.get("LD_LIBRARY_PATH", "").split(":")):
        place = Path(folder)
        if not machine.gpus or not place.is_dir() or str(place.resolve()) in folders:
            continue
        found = sorted(names & {path.name.partition(".so")[0] for path in place.glob("lib*.so*")})
        if found:
            yield Finding(
                status="warning",
                name="clashing libraries",
                found=f"LD_LIBRARY_PATH has {', '.join(found)} in {folder}, and they are taken before the wheels' own",
                fix="unset LD_LIBRARY_PATH",
                facts={"folder": folder, "libraries": found},
            )


def check_legacy_keras(machine: Machine) -> Iterator[Finding]:
    """Check whether a setting makes `tf.keras` Keras 2."""
    value = machine.environment.get("TF_USE_LEGACY_KERAS", "")
    if value.lower() in ("1", "true"):
        yield Finding(
            status="warning",
            name="TF_USE_LEGACY_KERAS",
            found=f"TF_USE_LEGACY_KERAS={value} makes `tf.keras` Keras 2, which fitroom does not serve; `import keras` "
            "is Keras 3 all the same",
            fix="unset TF_USE_LEGACY_KERAS",
        )
