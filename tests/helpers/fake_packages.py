"""Folders that look like site-packages with packages in them, for what is read from metadata alone."""


def install(folder, **versions):
    """Write the metadata of packages; `tensorflow_cpu="2.21"` is tensorflow-cpu 2.21. Returns the folder."""
    for name, version in versions.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    return folder


def require(folder, name, *requirements):
    """Add requirements to a package that was installed by `install`."""
    (file,) = folder.glob(f"{name}-*.dist-info/METADATA")
    file.write_text(file.read_text() + "".join(f"Requires-Dist: {text}\n" for text in requirements))


def own(folder, name, *files):
    """Have a package own files, which are made."""
    (info,) = folder.glob(f"{name}-*.dist-info")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
