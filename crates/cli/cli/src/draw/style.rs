//! Colors and fonts of the pictures. Every picture has its own background, so that it is legible on
//! pages of any color. With `prefers-color-scheme: dark`, background and text change; the colors of
//! the workers suit both.

/// CSS of all classes of elements.
pub(super) const CSS: &str = "\
text{font-family:Inter,ui-sans-serif,system-ui,-apple-system,'Segoe UI','Helvetica Neue',\
Arial,'DejaVu Sans',sans-serif;fill:#1f2733}\
.ground{fill:#fbfcfd;stroke:#d5dbe3}\
.title{font-size:20px;font-weight:700}\
.sub{font-size:13px;fill:#556070}\
.good{font-size:13px;font-weight:700;fill:#0d8a5b}\
.note{font-size:13px;font-weight:600;fill:#b45309}\
.d0{fill:#eef1f6;stroke:#c8d0db}.d1{fill:#e3e9f1;stroke:#b7c2d0}\
.d2{fill:#d8e0ea;stroke:#a9b5c5}.d3{fill:#cdd7e3;stroke:#9caabb}\
.core{fill:#ffffff;stroke:#b9c3d0}.slow{fill:#fdf6e3;stroke:#d9c48a}\
.cpu{fill:#f1f4f8}.slowcpu{fill:#f8eed2}.out{opacity:.35}\
.label{font-size:12px;font-weight:600;fill:#4a5667}\
.small{font-size:9px;fill:#7a8698}\
.id{font-size:9.5px;fill:#7a8698}\
.bigid{font-size:14px;font-weight:600;fill:#38465a;text-anchor:middle}\
.main{stroke:none}.maintext{font-weight:800;fill:#ffffff;text-anchor:middle}\
.peer{fill-opacity:.2;stroke-width:1.4}.peertext{font-weight:600;text-anchor:middle}\
.moved{fill:none;stroke:#1f2733;stroke-width:2.2;stroke-dasharray:3.2 2}\
@media (prefers-color-scheme:dark){\
text{fill:#e4e9f0}.ground{fill:#12171f;stroke:#2b3442}.sub{fill:#9aa6b6}\
.good{fill:#3fd39a}.note{fill:#f0b35a}\
.d0{fill:#1a212c;stroke:#333e4d}.d1{fill:#212a37;stroke:#3c4858}\
.d2{fill:#283342;stroke:#465365}.d3{fill:#303c4d;stroke:#505e71}\
.core{fill:#10151c;stroke:#465365}.slow{fill:#1f1b10;stroke:#6b5a2a}\
.cpu{fill:#1b222d}.slowcpu{fill:#2b2514}\
.label{fill:#b4bfcd}.small,.id{fill:#8b97a8}.bigid{fill:#d5dce6}\
.peer{fill-opacity:.38}.peertext{fill:#f3f6fa}\
.moved{stroke:#f3f6fa}}";

/// Colors that are easy to distinguish, even with most kinds of color blindness, and dark enough
/// for white letters.
const WORKERS: [&str; 16] = [
    "#2563eb", "#e0520d", "#0f9d6b", "#c026a3", "#b58105", "#7c3aed", "#0891b2", "#dc2647",
    "#5c8a0a", "#8b5e3c", "#475fa8", "#12807a", "#b8557f", "#9a3412", "#4b5563", "#64742a",
];

/// Color of a thread without a particular worker, in the legend.
pub(super) const NO_WORKER: &str = "#64748b";

/// The color of a worker; colors repeat after the sixteenth.
pub(super) fn worker_color(worker: u16) -> &'static str {
    WORKERS[usize::from(worker) % WORKERS.len()]
}

/// Hues of deployments, in degrees: consecutive ones are far apart.
const HUES: [u16; 8] = [217, 20, 158, 310, 45, 262, 190, 347];

/// Lightness of the workers of a deployment, in percent: dark enough for white letters.
const SHADES: [u16; 6] = [42, 31, 50, 36, 46, 26];

/// The color of a worker of one of several deployments: the hue of the deployment and the worker's
/// own lightness. Hues repeat after the eighth deployment.
pub(super) fn shade(deployment: usize, worker: u16) -> String {
    let hue = HUES[deployment % HUES.len()];
    let light = SHADES[usize::from(worker) % SHADES.len()];
    // Yellow and green appear lighter than other hues of the same lightness.
    let light = if (40..=200).contains(&hue) {
        light * 3 / 4
    } else {
        light
    };
    let [r, g, b] = rgb(f64::from(hue), 0.72, f64::from(light) / 100.0);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Converts hue in degrees, saturation and lightness from 0 to 1, to red, green and blue.
fn rgb(hue: f64, saturation: f64, light: f64) -> [u8; 3] {
    let reach = saturation * light.min(1.0 - light);
    [0.0, 8.0, 4.0].map(|n| {
        let k = (n + hue / 30.0) % 12.0;
        let value = light - reach * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::{rgb, shade};

    #[test]
    fn hues_are_converted_to_rgb() {
        assert_eq!(rgb(0.0, 1.0, 0.5), [255, 0, 0]);
        assert_eq!(rgb(120.0, 1.0, 0.25), [0, 128, 0]);
        assert_eq!(rgb(240.0, 0.5, 0.5), [64, 64, 191]);
        assert_ne!(shade(0, 0), shade(0, 1));
        assert_ne!(shade(0, 0), shade(1, 0));
    }
}
