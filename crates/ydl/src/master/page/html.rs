//! The page: one document without scripts, links to other hosts or data of the request.

use super::{ClusterPages, PageState};
use std::fmt::Write as _;

/// Maximum length of a text in characters.
const TEXT_MAX: usize = 2000;
/// Maximum number of roles shown.
const ROLES_MAX: usize = 100;
/// Seconds between reloads. Each one is a line in the ResourceManager's log.
const RELOAD_S: u32 = 30;

const STYLE: &str = "\
    :root{color-scheme:light dark}\
    body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:50rem;padding:0 1rem}\
    table{border-collapse:collapse}th,td{padding:.2rem 1.2rem .2rem 0;text-align:left;vertical-align:top}\
    th{font-weight:normal;opacity:.7}pre{padding:.8rem;border:1px solid;border-radius:.3rem;overflow:auto}";

/// Returns the page of a job. `is_full` adds details that only viewers may see.
pub(super) fn render(id: &str, pages: &ClusterPages, state: &PageState, is_full: bool) -> String {
    let title = if is_full { escape(&state.name) } else { escape(id) };
    // Writing to a string cannot fail.
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"refresh\" content=\"{RELOAD_S}\">\
         <title>{title}: {}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<table>\n",
        state.state
    );
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(out, "<tr><th scope=\"row\">{name}</th><td>{}</td></tr>", escape(value));
    };
    row("application", id);
    row("state", state.state);
    if is_full {
        row("reason", &state.reason);
        row("progress", &format!("{} %", state.progress.percent()));
        if let Some(priority) = state.priority {
            row("priority", &priority.to_string());
        }
        if state.round > 0 {
            row("round", &state.round.to_string());
        }
    }
    out.push_str("</table>\n");
    if is_full && !state.roles.is_empty() {
        add_roles(&mut out, state);
    }
    let id = escape(id);
    let _ = write!(
        out,
        "<h2>More</h2>\n<pre>ydl status {id}    # tasks, nodes, usage, metrics\n\
         ydl logs {id}      # output of all tasks\n</pre>\n"
    );
    let links = [("this page", &pages.proxied), ("the application in YARN", &pages.application)];
    for (name, link) in links {
        if let Some(link) = link {
            let _ = writeln!(out, "<p><a href=\"{}\">{name}</a></p>", escape(link));
        }
    }
    out.push_str("</body></html>\n");
    out
}

fn add_roles(out: &mut String, state: &PageState) {
    out.push_str("<h2>Roles</h2>\n<table>\n<tr>");
    for name in ["role", "tasks", "waiting", "preparing", "running", "succeeded", "failed"] {
        let _ = write!(out, "<th scope=\"col\">{name}</th>");
    }
    out.push_str("</tr>\n");
    for role in state.roles.iter().take(ROLES_MAX) {
        let _ = write!(out, "<tr><td>{}</td>", escape(role.role.as_str()));
        let counts = [
            role.instances,
            role.waiting,
            role.preparing,
            role.running,
            role.succeeded,
            role.failed,
        ];
        for count in counts {
            let _ = write!(out, "<td>{count}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
    if let Some(more @ 1..) = state.roles.len().checked_sub(ROLES_MAX) {
        let _ = writeln!(out, "<p>and {more} more</p>");
    }
}

/// Returns a text of limited length that is inert in elements and quoted attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len().min(TEXT_MAX));
    for c in text.chars().filter(|c| !c.is_control()).take(TEXT_MAX) {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_core::view::RoleView;

    fn hostile_state() -> PageState {
        let role = RoleView {
            role: "<b>".into(),
            instances: 3,
            elastic: None,
            waiting: 0,
            preparing: 0,
            running: 2,
            succeeded: 1,
            failed: 0,
        };
        PageState {
            name: "<img src=x onerror='alert(1)'>".to_owned(),
            reason: "\"failed\" & \u{1b}[31m</td><script>x</script>".to_owned(),
            roles: vec![role; ROLES_MAX + 2],
            ..PageState::starting("")
        }
    }

    #[test]
    fn all_texts_are_escaped() {
        let page = render("application_1_1", &ClusterPages::default(), &hostile_state(), true);
        for inert in ["<img", "<script", "<b>", "\u{1b}", "alert(1)'"] {
            assert!(!page.contains(inert), "{inert}: {page}");
        }
        assert!(page.contains("&lt;img src=x onerror=&#39;alert(1)&#39;&gt;"), "{page}");
        assert!(page.contains("and 2 more"), "{page}");
    }

    #[test]
    fn the_page_is_bounded() {
        let mut state = hostile_state();
        state.name = "<".repeat(1 << 20);
        state.reason = "&".repeat(1 << 20);
        let page = render("application_1_1", &ClusterPages::default(), &state, true);
        assert!(page.len() < 64 << 10, "{}", page.len());
    }

    #[test]
    fn a_closed_page_shows_only_the_application_and_its_state() {
        let pages = ClusterPages {
            proxied: Some("http://rm:8088/proxy/application_1_1/".to_owned()),
            ..ClusterPages::default()
        };
        let page = render("application_1_1", &pages, &hostile_state(), false);
        for hidden in ["onerror", "failed", "priority", "Roles"] {
            assert!(!page.contains(hidden), "{hidden}: {page}");
        }
        for shown in
            ["application_1_1", "starting", "ydl logs application_1_1", "http://rm:8088/proxy/"]
        {
            assert!(page.contains(shown), "{shown}: {page}");
        }
    }
}
