"""`python -m skein.recipes.jupyter_notebook`: a notebook server that publishes its address under `jupyter.notebook.info`."""

import json
import os
import socket
from typing import Any

from notebook import notebookapp
from traitlets import Unicode

from ..application import ApplicationClient

_ALIASES = {**notebookapp.aliases, "notebook-info-key": "SkeinNotebookApp.notebook_info_key"}


class SkeinNotebookApp(notebookapp.NotebookApp):  # type: ignore[misc]
    """Notebook server that publishes its address in the key-value store."""

    name = "python -m skein.recipes.jupyter_notebook"
    aliases = _ALIASES
    notebook_info_key = Unicode("jupyter.notebook.info", config=True, help="Key of the server's address")

    def write_server_info_file(self) -> None:
        """Writes the server's file and publishes its address."""
        super().write_server_info_file()
        info = {
            "protocol": "https" if self.certfile else "http",
            "host": socket.gethostname(),
            "port": self.port,
            "base_url": self.base_url,
            "token": self.token,
        }
        ApplicationClient.from_current().kv[self.notebook_info_key] = json.dumps(info).encode("utf-8")


def start_notebook_application(argv: Any = None) -> None:
    """Runs the server on all interfaces, without a browser."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
        if os.environ.get(name) is None:
            os.makedirs(".jupyter", exist_ok=True)
            os.environ[name] = "./.jupyter"
    from traitlets.config import Config

    # Arguments take precedence.
    defaults = Config({"SkeinNotebookApp": {"ip": "0.0.0.0", "open_browser": False}})
    SkeinNotebookApp.launch_instance(argv=argv, config=defaults)


if __name__ == "__main__":
    start_notebook_application()
