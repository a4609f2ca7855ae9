//! NVIDIA's management library, if installed.

use std::fmt;
use std::sync::OnceLock;

use nvml_wrapper::Nvml;

/// Library handle, opened on first use. Its absence is normal.
struct Library(Option<Nvml>);

impl fmt::Debug for Library {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Library({})", if self.0.is_some() { "open" } else { "absent" })
    }
}

/// Returns the library if this machine has it and a driver.
pub fn nvml() -> Option<&'static Nvml> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let open = || {
        // A driver installed without development files provides only the versioned name.
        let names = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
        Library(names.iter().find_map(|name| Nvml::builder().lib_path(name.as_ref()).init().ok()))
    };
    LIBRARY.get_or_init(open).0.as_ref()
}
