use super::*;
use collect::{OutputFile, gather};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::SystemTime;
use target::{FileUpload, UploadTarget};
use upload::UploadRun;
use upload_log::FileStamp;
use ydl_core::Span;
use ydl_storage::store::{ABANDONED_AGE, FileStore, LocalStore, temporary_name};

struct TestDirs {
    dir: tempfile::TempDir,
}

impl TestDirs {
    fn new(files: &[(&str, &str)]) -> TestDirs {
        let place = TestDirs { dir: tempfile::tempdir().unwrap() };
        fs::create_dir_all(place.work()).unwrap();
        for (name, text) in files {
            let path = place.work().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        place
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn copy(&self, from: &str, to: &str) -> Result<Copied, OutputError> {
        self.copy_to(from, PathBuf::from(format!("{}{to}", self.out().display())))
    }

    fn copy_to(&self, from: &str, to: PathBuf) -> Result<Copied, OutputError> {
        block_on(copy(&self.work(), &[(from.into(), to)]))
    }

    fn stores(&self) -> HdfsClients {
        HdfsClients::new(JobDir::at(self.dir.path()))
    }

    /// Returns the upload of `d/` of worker:0 to `out`.
    fn request(&self, every: Option<Span>, shared: bool) -> UploadRequest {
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        UploadRequest {
            owner: "job-worker=0".into(),
            outputs: vec![TaskOutput {
                from: "d/".into(),
                to: path(self.out()),
                existing: ExistingPolicy::Overwrite,
                every,
                shared,
            }],
            reservations: Reservations {
                dir: path(self.dir.path().join("reservations")),
                job: "job".into(),
                task: "worker:0".into(),
            },
            work: self.work(),
            upload_log: UploadLog::default(),
            deadline: Instant::now() + Duration::from_secs(60),
        }
    }

    /// Returns the upload of the file `a` to `out/a`, and the stamp of the file.
    fn upload_of_a(&self, mode: u32) -> (FileUpload, FileStamp) {
        let found = gather(&self.work().canonicalize().unwrap(), "a", None, false);
        let [item] = found.unwrap().unwrap().files.try_into().unwrap();
        let stamp = item.stamp;
        let target = self.out().join("a").to_string_lossy().into_owned();
        let temporary = LocalStore.temporary(&target, "").unwrap();
        (FileUpload { item: OutputFile { mode, ..item }, temporary, target }, stamp)
    }

    /// Lists everything below `out`, links with their targets.
    fn found(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut dirs = vec![self.out()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.out()).unwrap().display().to_string();
                match fs::read_link(&path) {
                    Ok(target) => found.push(format!("{name} -> {}", target.display())),
                    Err(_) if path.is_dir() => dirs.push(path),
                    Err(_) => found.push(format!("{name}={}", fs::read_to_string(path).unwrap())),
                }
            }
        }
        found.sort();
        found
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(future)
}

#[test]
fn a_directory_is_merged_into_its_destination() {
    let place = TestDirs::new(&[("model/a", "new"), ("model/deep/b", "b")]);
    fs::create_dir_all(place.out()).unwrap();
    fs::write(place.out().join("a"), "old").unwrap();
    fs::write(place.out().join("kept"), "k").unwrap();
    let copied = place.copy("model/", "").unwrap();
    assert_eq!(copied, Copied { files: 2, bytes: 4, absent: vec![] });
    assert_eq!(place.found(), ["a=new", "deep/b=b", "kept=k"]);
}

#[test]
fn a_file_becomes_its_destination_or_goes_into_it() {
    let place = TestDirs::new(&[("model.bin", "m")]);
    place.copy("model.bin", "/final.bin").unwrap();
    place.copy("./model.bin", "/dir/").unwrap();
    place.copy("model.bin", "").unwrap();
    assert_eq!(place.found(), ["dir/model.bin=m", "final.bin=m", "model.bin=m"]);
}

#[test]
fn a_pattern_takes_what_it_matches_but_not_what_is_hidden() {
    let place = TestDirs::new(&[
        ("ckpt-1.bin", "1"),
        ("ckpt-2.bin", "2"),
        ("ckpt-2.txt", "t"),
        (".ckpt-3.bin", "h"),
    ]);
    assert_eq!(place.copy("ckpt-*.bin", "").unwrap().files, 2);
    assert_eq!(place.found(), ["ckpt-1.bin=1", "ckpt-2.bin=2"]);
    assert_eq!(place.copy("none-*", "").unwrap().absent, ["none-*"]);
}

#[test]
fn an_absent_source_is_no_error() {
    let place = TestDirs::new(&[]);
    assert_eq!(place.copy("model/", "").unwrap().absent, ["model/"]);
    assert!(!place.out().exists());
}

#[test]
fn paths_outside_the_working_directory_are_rejected() {
    let place = TestDirs::new(&[("ok", "")]);
    for from in ["/etc/passwd", "../secret", "a/../../b", "", "../*"] {
        let error = place.copy(from, "").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "cannot copy the output `{from}`: it is not a path inside the working directory"
            )
        );
    }
}

#[test]
fn inner_links_are_copied_and_outer_links_are_rejected_by_name() {
    let place = TestDirs::new(&[("model/step-7/w", "w"), ("secret", "s")]);
    let model = place.work().join("model");
    symlink("step-7", model.join("latest")).unwrap();
    symlink(place.work().canonicalize().unwrap().join("model/step-7/w"), model.join("best"))
        .unwrap();
    symlink("nowhere", model.join("dangling")).unwrap();
    symlink("../secret", model.join("up")).unwrap();
    symlink("/etc/passwd", model.join("passwd")).unwrap();
    let error = place.copy("model", "").unwrap_err();
    let mut failures = error.failures.clone();
    failures.sort();
    assert_eq!(failures.len(), 2);
    assert!(failures[0].contains("model/passwd`: it points outside, to `/etc/passwd`"));
    assert!(failures[1].contains("model/up`: it points outside, to `../secret`"));
    assert!(error.to_string().ends_with("(and 1 more)"), "{error}");
    assert_eq!(
        place.found(),
        ["best -> step-7/w", "dangling -> nowhere", "latest -> step-7", "step-7/w=w"]
    );

    symlink("/etc", place.work().join("etc")).unwrap();
    let error = place.copy("etc", "/etc").unwrap_err();
    assert!(error.to_string().contains("work/etc`: it points outside"), "{error}");
}

#[test]
fn a_link_the_user_named_is_followed_inside_the_working_directory() {
    let place = TestDirs::new(&[("ckpt-7", "seven")]);
    symlink("ckpt-7", place.work().join("best")).unwrap();
    place.copy("best", "/best").unwrap();
    assert_eq!(place.found(), ["best=seven"]);
}

#[test]
fn permission_bits_are_kept() {
    let place = TestDirs::new(&[("d/tool", "#!"), ("d/closed/x", "x")]);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let set = |name: &str, mode| {
        fs::set_permissions(place.work().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("d/tool", 0o4755);
    set("d/closed/x", 0o400);
    set("d/closed", 0o500);
    place.copy("d", "").unwrap();
    assert_eq!(mode(place.out().join("tool")), 0o755);
    assert_eq!(mode(place.out().join("closed/x")), 0o400);
    assert_eq!(mode(place.out().join("closed")), 0o700);
}

#[test]
fn special_files_are_rejected_and_do_not_block() {
    let place = TestDirs::new(&[("d/x", "x")]);
    let pipe = place.work().join("d/pipe");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, 0o600.into(), 0).unwrap();
    let error = place.copy("d", "").unwrap_err();
    assert!(error.to_string().ends_with("d/pipe`: it is not a regular file"), "{error}");
    assert_eq!(place.found(), ["x=x"]);
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let place = TestDirs::new(&[("d/x", "x")]);
    let to = place.work().join("d/new/deeper");
    let error = place.copy_to("d", to).unwrap_err();
    assert!(error.to_string().ends_with("one contains the other"), "{error}");
}

#[test]
fn an_unwritable_destination_is_named_and_no_partial_file_is_left() {
    let place = TestDirs::new(&[("d/x", "x"), ("d/y", "y")]);
    fs::create_dir_all(place.out().join("x")).unwrap();
    let error = place.copy("d", "").unwrap_err();
    assert!(error.to_string().ends_with("out/x`: the destination is a directory"), "{error}");
    assert_eq!(error.copied.files, 1);
    assert_eq!(place.found(), ["y=y"]);
}

#[test]
fn a_file_that_changes_during_the_copy_is_not_renamed_into_place() {
    let place = TestDirs::new(&[("a", "new")]);
    fs::create_dir_all(place.out()).unwrap();
    fs::write(place.out().join("a"), "old").unwrap();
    let from = place.work().join("a");
    let deadline = Instant::now();
    let (upload, stamp) = place.upload_of_a(0o644);
    let source = stamp.open(&from).unwrap();
    fs::write(&from, "newer").unwrap();
    let sent = block_on(upload.send_open(&LocalStore, source, Some(stamp), deadline));
    assert_eq!(sent.unwrap_err().why, "it changed during the upload");
    block_on(upload.discard(&LocalStore));
    assert_eq!(place.found(), ["a=old"]);
    let sent = block_on(upload.send(&LocalStore, Some(stamp), deadline));
    assert_eq!(sent.unwrap_err().why, "it changed before it was uploaded");
    assert_eq!(place.found(), ["a=old"]);
    let (upload, stamp) = place.upload_of_a(0o640);
    assert_eq!(block_on(upload.send(&LocalStore, Some(stamp), deadline)).unwrap(), 5);
    block_on(upload.finish(&LocalStore, deadline)).unwrap();
    assert_eq!(place.found(), ["a=newer"]);
    let mode = fs::metadata(place.out().join("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn a_replacement_of_a_file_is_not_mistaken_for_it() {
    let place = TestDirs::new(&[("a", "whole")]);
    fs::create_dir_all(place.out()).unwrap();
    let from = place.work().join("a");
    let deadline = Instant::now();
    let (upload, stamp) = place.upload_of_a(0o644);
    // Removed and rewritten during the copy: the original is copied.
    let source = stamp.open(&from).unwrap();
    fs::remove_file(&from).unwrap();
    fs::write(&from, "hal").unwrap();
    block_on(upload.send_open(&LocalStore, source, Some(stamp), deadline)).unwrap();
    block_on(upload.finish(&LocalStore, deadline)).unwrap();
    assert_eq!(place.found(), ["a=whole"]);
    // And before the copy: the new file was not stamped.
    let error = stamp.open(&from).unwrap_err();
    assert_eq!(error.to_string(), "it changed before it was uploaded");
    fs::remove_file(&from).unwrap();
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &from, kind, 0o600.into(), 0).unwrap();
    let error = stamp.open(&from).unwrap_err();
    assert_eq!(error.to_string(), "it changed before it was uploaded");
}

#[test]
fn abandoned_temporary_files_are_removed_and_growing_ones_are_not() {
    let place = TestDirs::new(&[("d/x", "x")]);
    fs::create_dir_all(place.out()).unwrap();
    let long_ago = SystemTime::now() - ABANDONED_AGE - Duration::from_secs(60);
    for (name, is_old) in [(".x.ydl-1-1", true), (".x.ydl-1-2", false), (".hidden", true)] {
        let file = File::create(place.out().join(name)).unwrap();
        if is_old {
            file.set_modified(long_ago).unwrap();
        }
    }
    place.copy("d", "").unwrap();
    assert_eq!(place.found(), [".hidden=", ".x.ydl-1-2=", "x=x"]);
}

#[test]
fn the_rest_of_a_continuous_upload_skips_hidden_and_uploaded_files() {
    let place = TestDirs::new(&[("d/step-1/w", "w"), ("d/.new", "half"), ("d/b", "b")]);
    symlink("step-1", place.work().join("d/latest")).unwrap();
    // Uploaded while the program ran: a link's target directory is a directory there.
    fs::create_dir_all(place.out().join("latest")).unwrap();
    fs::write(place.out().join("latest/w"), "w").unwrap();
    fs::write(place.out().join("b"), "B").unwrap();
    let request = place.request(Some(Span::seconds(1)), false);
    let about = fs::metadata(place.work().join("d/b")).unwrap();
    let target = place.out().join("b").to_string_lossy().into_owned();
    request.upload_log.record_upload(target, FileStamp::of(&about));
    block_on(upload_outputs(&place.stores(), &request)).unwrap();
    assert_eq!(place.found(), ["b=B", "latest/w=w", "step-1/w=w"]);
    // Differs from the uploaded file now.
    fs::write(place.out().join("b"), "shorter").unwrap();
    block_on(upload_outputs(&place.stores(), &request)).unwrap();
    assert_eq!(place.found()[0], "b=b");
}

#[test]
fn a_new_directory_appears_complete_or_not_at_all() {
    let place = TestDirs::new(&[("d/a", "a"), ("d/sub/b", "b"), ("x-1", "1")]);
    place.copy("d/", "").unwrap();
    assert_eq!(place.found(), ["a=a", "sub/b=b"]);
    place.copy("x-*", "/new").unwrap();
    assert_eq!(place.found(), ["a=a", "new/x-1=1", "sub/b=b"]);
    // Another task was first: its files stay, and these are merged.
    fs::remove_dir_all(place.out()).unwrap();
    let (stores, request) = (place.stores(), place.request(None, false));
    let out = &request.outputs[0].to;
    let target = block_on(UploadTarget::find(&stores, out, false, "", request.deadline)).unwrap();
    fs::create_dir_all(place.out().join("sub")).unwrap();
    fs::write(place.out().join("sub/c"), "c").unwrap();
    let work = place.work().canonicalize().unwrap();
    let found = gather(&work, "d/", Some(&place.out()), false).unwrap().unwrap();
    let placed = block_on(UploadRun::new(&stores, &request).place_new(&found, target)).unwrap();
    assert_eq!(placed.files, 2);
    assert_eq!(place.found(), ["a=a", "sub/b=b", "sub/c=c"]);
    let left = fs::read_dir(place.dir.path()).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with('.'));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_name_written_by_another_task_is_not_overwritten() {
    let place = TestDirs::new(&[("d/model", "mine"), ("d/own", "o")]);
    fs::create_dir_all(place.out()).unwrap();
    fs::write(place.out().join("model"), "theirs").unwrap();
    let other = Reservations { task: "worker:1".into(), ..place.request(None, true).reservations };
    let out = place.out().to_string_lossy().into_owned();
    let (files, deadline) =
        ([("model".to_owned(), None)].into(), Instant::now() + Duration::from_secs(60));
    block_on(other.announce(&place.stores(), "d/", &out, files, deadline)).unwrap();
    let error = block_on(upload_outputs(&place.stores(), &place.request(None, true))).unwrap_err();
    let sentence = format!("`model` to `{out}`: `d/` of worker:1 has written that name");
    assert!(error.to_string().contains(&sentence), "{error}");
    assert_eq!(place.found(), ["model=theirs", "own=o"]);
}

#[test]
fn temporary_files_of_a_dead_process_are_removed_at_once() {
    let place = TestDirs::new(&[("d/x", "x")]);
    fs::create_dir_all(place.out().join("old")).unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let name = |pid: u32| temporary_name(b"big", pid, 0);
    for pid in [pid, std::process::id()] {
        fs::write(place.out().join(name(pid)), "half").unwrap();
    }
    let gone = place.out().join(temporary_name(b"dir", pid, 1));
    fs::create_dir(&gone).unwrap();
    fs::write(gone.join("x"), "half").unwrap();
    place.copy("d", "").unwrap();
    assert!(!gone.exists());
    let own = name(std::process::id()).to_string_lossy().into_owned();
    assert_eq!(place.found(), [format!("{own}=half"), "x=x".to_owned()]);
}
