//! NVIDIA's library, where there is one.

use std::fmt;
use std::sync::OnceLock;

use nvml_wrapper::Nvml;

/// Opened when first needed. That it is absent is nothing unusual.
struct Library(Option<Nvml>);

impl fmt::Debug for Library {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Library({})", if self.0.is_some() { "open" } else { "absent" })
    }
}

/// The library, if this machine has it and a driver below it.
pub fn nvml() -> Option<&'static Nvml> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let open = || {
        // Where the driver is installed without its development files only the first name exists.
        let names = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
        Library(names.iter().find_map(|name| Nvml::builder().lib_path(name.as_ref()).init().ok()))
    };
    LIBRARY.get_or_init(open).0.as_ref()
}
