"""`python -m skein.recipes.ipython_kernel`: a kernel that publishes its connection under `ipython.kernel.info`."""

import json
import os
import socket
from typing import Any

from ipykernel import kernelapp
from traitlets import Unicode

from ..application import ApplicationClient

_ALIASES = {**kernelapp.kernel_aliases, "kernel-info-key": "SkeinIPKernelApp.kernel_info_key"}


class SkeinIPKernelApp(kernelapp.IPKernelApp):  # type: ignore[misc]
    """Kernel that publishes its connection in the key-value store."""

    name = "python -m skein.recipes.ipython_kernel"
    aliases = _ALIASES
    kernel_info_key = Unicode("ipython.kernel.info", config=True, help="Key of the kernel's connection")

    def write_connection_file(self, *args: Any, **kwargs: Any) -> None:
        """Writes the connection file and publishes it."""
        super().write_connection_file(*args, **kwargs)
        with open(self.abs_connection_file, encoding="utf-8") as file:
            info = json.load(file)
        if info["ip"] in ("", "0.0.0.0"):
            info["ip"] = socket.gethostbyname(socket.gethostname())
        ApplicationClient.from_current().kv[self.kernel_info_key] = json.dumps(info).encode("utf-8")


def start_ipython_kernel(argv: Any = None) -> None:
    """Runs the kernel on all interfaces."""
    if os.environ.get("JUPYTER_RUNTIME_DIR") is None:
        os.makedirs(".jupyter", exist_ok=True)
        os.environ["JUPYTER_RUNTIME_DIR"] = "./.jupyter"
    from traitlets.config import Config

    # Arguments take precedence.
    SkeinIPKernelApp.launch_instance(argv=argv, config=Config({"SkeinIPKernelApp": {"ip": "0.0.0.0"}}))


if __name__ == "__main__":
    start_ipython_kernel()
