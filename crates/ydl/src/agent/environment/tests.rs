//! Tests of composed environments and of incompatible nodes.

use super::*;

fn python(executable: &str) -> Python {
    Python {
        minor: "3.11".into(),
        version: "3.11.7".into(),
        executable: executable.into(),
        bundled: false,
        needs_library_path: false,
        packages_need_library_path: false,
        whole: false,
        system_packages: false,
    }
}

fn put(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

#[test]
fn activation_puts_the_environment_first_in_the_path() {
    let mut env = BTreeMap::from([
        ("PATH".to_owned(), "/usr/bin".to_owned()),
        ("PYTHONHOME".to_owned(), "/old".to_owned()),
    ]);
    Activation::in_place("/venv".into()).apply(&mut env);
    assert_eq!(env["PATH"], "/venv/bin:/usr/bin");
    assert_eq!(env["VIRTUAL_ENV"], "/venv");
    assert!(!env.contains_key("PYTHONHOME"));
    assert!(!env.contains_key("LD_LIBRARY_PATH"));
    let activation = Activation {
        prefix: "/venv".into(),
        libraries: vec!["/venv/lib".into(), "/cache/1/lib".into()],
    };
    activation.apply(&mut env);
    assert_eq!(env["LD_LIBRARY_PATH"], "/venv/lib:/cache/1/lib");
}

#[test]
fn activation_of_a_conda_environment_sets_condas_variables() {
    let dir = tempfile::tempdir().expect("a directory");
    put(dir.path(), "conda-meta/history", "");
    put(dir.path(), "ssl/cacert.pem", "");
    let mut env = BTreeMap::new();
    let prefix = dir.path().to_path_buf();
    Activation::in_place(prefix.clone()).apply(&mut env);
    assert_eq!(env["CONDA_PREFIX"], prefix.display().to_string());
    assert!(!env.contains_key("VIRTUAL_ENV"), "{env:?}");
    assert!(env["SSL_CERT_FILE"].ends_with("/ssl/cacert.pem"));
    env.insert("SSL_CERT_FILE".to_owned(), "/mine".to_owned());
    Activation::in_place(prefix).apply(&mut env);
    assert_eq!(env["SSL_CERT_FILE"], "/mine", "the user's value was replaced");
}

/// A manifest without relocated files.
fn plain(python: Option<Python>) -> Manifest {
    Manifest {
        format: Manifest::FORMAT,
        machine: None,
        glibc: None,
        glibc_file: None,
        python,
        original_paths: Vec::new(),
        texts_with_path: Vec::new(),
    }
}

#[test]
fn relocated_texts_name_the_new_prefix_and_stale_byte_code_is_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let (one, to) = (dir.path().join("one"), dir.path().join("to"));
    put(&one, "etc/tool/a.conf", "root = /old/env/share\n");
    put(&one, "etc/tool/b.conf", "other");
    put(&one, "share/c", "c");
    put(&one, "lib/python3.11/site-packages/p/where.py", "'/old/env'");
    put(&one, "lib/python3.11/site-packages/p/__pycache__/where.cpython-311.pyc", "x");
    put(&one, "lib/python3.11/site-packages/p/__pycache__/else.cpython-311.pyc", "x");
    let mut manifest = plain(Some(python("x")));
    manifest.original_paths = vec!["/old/env".into()];
    manifest.texts_with_path = vec![
        "etc/tool/a.conf".into(),
        "lib/python3.11/site-packages/p/where.py".into(),
        "../out".into(),
    ];
    let mut whole = python("x");
    whole.whole = true;
    let sources = [one.clone()];
    Composition::new(&manifest, &whole, &to, &sources)
        .build(Path::new("/cache/1/bin/python3.11"))
        .expect("an environment");
    let read = |name: &str| fs::read_to_string(to.join(name)).expect("a file");
    let here = to.display();
    assert_eq!(read("etc/tool/a.conf"), format!("root = {here}/share\n"));
    assert_eq!(read("lib/python3.11/site-packages/p/where.py"), format!("'{here}'"));
    let linked = |name: &str| fs::read_link(to.join(name)).ok();
    assert_eq!(linked("etc/tool/b.conf"), Some(one.join("etc/tool/b.conf")));
    assert_eq!(linked("share"), Some(one.join("share")));
    let cache = to.join("lib/python3.11/site-packages/p/__pycache__");
    assert!(!cache.join("where.cpython-311.pyc").exists());
    assert!(cache.join("else.cpython-311.pyc").exists());
    assert!(read("pyvenv.cfg").starts_with(&format!("home = {here}/bin\n")));
}

#[test]
fn a_namespace_package_of_two_layers_is_merged() {
    let dir = tempfile::tempdir().expect("a directory");
    let (one, two, to) = (dir.path().join("one"), dir.path().join("two"), dir.path().join("to"));
    let site = "lib/python3.11/site-packages";
    put(&one, &format!("{site}/space/theirs/x.py"), "theirs");
    put(&one, &format!("{site}/numpy/a.py"), "numpy");
    put(&one, "bin/tool", "one");
    put(&two, &format!("{site}/space/mine/y.py"), "mine");
    put(&two, "bin/tool", "two");
    let executable = Path::new("/usr/bin/python3.11");
    let sources = [one.clone(), two];
    let (manifest, python) = (plain(None), python("x"));
    let composition = Composition::new(&manifest, &python, &to, &sources);
    composition.build(executable).expect("an environment");
    let read = |name: &str| fs::read_to_string(to.join(name)).expect("a file");
    assert_eq!(read(&format!("{site}/space/theirs/x.py")), "theirs");
    assert_eq!(read(&format!("{site}/space/mine/y.py")), "mine");
    assert_eq!(read("bin/tool"), "two", "the user's value was replaced");
    let numpy = fs::read_link(to.join(site).join("numpy")).expect("a link");
    assert_eq!(numpy, one.join(site).join("numpy"));
    assert_eq!(fs::read_link(to.join("bin/python")).expect("a link"), executable);
    assert!(read("pyvenv.cfg").starts_with("home = /usr/bin\n"));
    composition.build(Path::new("/other")).expect("it is there");
    assert_eq!(fs::read_link(to.join("bin/python")).expect("a link"), executable);
}

#[test]
fn a_missing_interpreter_lists_the_paths_tried() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut wanted = python("/home/me/bin/python3.99");
    wanted.minor = "3.99".into();
    let path = dir.path().as_os_str().to_owned();
    let here = dir.path().display();
    assert_eq!(
        find_interpreter(&wanted, path.clone()).expect_err("none"),
        format!(
            "this node has no Python 3.99: tried `/home/me/bin/python3.99`, `{here}/python3.99`, \
             `/usr/bin/python3.99`, `/usr/local/bin/python3.99`; set `interpreter: bundle` below `environment` to ship one"
        )
    );
    // A script that starts another interpreter is not one.
    put(dir.path(), "python3.99", "#!/bin/sh\n");
    find_interpreter(&wanted, path).expect_err("none");
    let found = dir.path().join("found");
    put(&found, "bin/python3.99", "\x7fELF…");
    put(&found, "lib/python3.99/os.py", "");
    let path = found.join("bin").into_os_string();
    let real = found.canonicalize().expect("a path").join("bin/python3.99");
    assert_eq!(find_interpreter(&wanted, path).expect("one"), real);
}

#[test]
fn an_incompatible_node_is_rejected_with_the_reason() {
    let manifest = Manifest {
        machine: Some("x86_64".into()),
        glibc: Some((2, 28)),
        glibc_file: Some("lib/a.so".into()),
        ..plain(None)
    };
    assert_eq!(check_node(&manifest, "x86_64", Some((2, 28))), Ok(()));
    assert_eq!(check_node(&manifest, "x86_64", None), Ok(()));
    let old = check_node(&manifest, "x86_64", Some((2, 17))).expect_err("too old");
    assert!(
        old.starts_with("the environment needs glibc 2.28 (`lib/a.so`), but this node has 2.17"),
        "{old}"
    );
    let other = check_node(&manifest, "aarch64", Some((2, 40))).expect_err("another machine");
    assert!(other.starts_with("the environment was built for x86_64, but this node is aarch64"));
}

#[test]
fn the_glibc_version_of_this_machine_is_detected() {
    assert!(glibc() >= Some((2, 17)), "{:?}", glibc());
}

#[test]
fn an_incomplete_environment_is_rejected() {
    let dir = tempfile::tempdir().expect("a directory");
    let compose = || compose(dir.path(), &dir.path().join("venv"));
    assert!(compose().expect_err("none").contains("has no layer `"));
    fs::create_dir(dir.path().join("local")).expect("a directory");
    assert!(compose().expect_err("nothing").starts_with("cannot read `"));
    put(dir.path(), "local/environment.json", "{");
    assert!(compose().expect_err("half of it").starts_with("cannot read `"));
    put(dir.path(), "local/environment.json", r#"{"format": 7}"#);
    assert!(compose().expect_err("another").starts_with("cannot read `"));
    let plain =
        r#"{"format": 1, "machine": null, "glibc": null, "glibc_file": null, "python": null}"#;
    put(dir.path(), "local/environment.json", plain);
    assert!(compose().expect_err("no layer").contains("has no layer `"));
    fs::create_dir(dir.path().join("packages")).expect("a directory");
    let packages = dir.path().join("packages").canonicalize().expect("a path");
    assert_eq!(compose(), Ok(Activation::in_place(packages)));
}
