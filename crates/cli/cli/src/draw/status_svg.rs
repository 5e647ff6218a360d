//! The pods of deployments and the CPUs that each may use, by node, as a picture: one strip of CPUs
//! per pod.

use std::collections::BTreeMap;

use albacore_topology::{CpuId, CpuSet};

use super::disc::Disc;
use super::style::{CSS, NO_WORKER, shade};
use albacore_svg::{Svg, bold_width, text_width};

/// Most CPUs shown in a strip; the largest servers of 2026 have 768.
const CPUS_MAX: u16 = 1024;
const MARGIN: f64 = 20.0;
const CELL: f64 = 15.0;
/// CPUs per line of a strip.
const LINE: u16 = 64;
const GAP: f64 = 8.0;

/// A pod in the picture.
pub(crate) struct PodStrip {
    /// Index of its deployment, which determines the color.
    pub(crate) deployment: usize,
    pub(crate) node: Option<String>,
    /// The text above the strip.
    pub(crate) label: String,
    /// The text beside the label.
    pub(crate) verdict: String,
    pub(crate) is_good: bool,
    pub(crate) cpuset: Option<CpuSet>,
}

/// The picture as SVG; nodes are ordered by name, pods without a node are last.
pub(crate) fn status_svg(title: &str, pods: &[PodStrip]) -> String {
    let mut by_node: BTreeMap<(bool, &str), Vec<&PodStrip>> = BTreeMap::new();
    for pod in pods {
        let name = pod.node.as_deref();
        by_node
            .entry((name.is_none(), name.unwrap_or("no node yet")))
            .or_default()
            .push(pod);
    }
    let mut svg = Svg::default();
    let mut width = 2.0 * MARGIN + bold_width(title, 20.0);
    svg.text("title", (MARGIN, MARGIN + 18.0), title);
    let mut y = MARGIN + 40.0;
    for ((_, node), pods) in by_node {
        svg.text(
            "bigid",
            (MARGIN + bold_width(node, 14.0) / 2.0, y + 12.0),
            node,
        );
        y += 26.0;
        let cpus = cpus_of(&pods);
        for pod in pods {
            let label = bold_width(&pod.label, 12.0);
            svg.text("label", (MARGIN, y + 10.0), &pod.label);
            let class = if pod.is_good { "good" } else { "note" };
            svg.text(class, (MARGIN + label + GAP, y + 10.0), &pod.verdict);
            width = width.max(2.0 * MARGIN + label + GAP + text_width(&pod.verdict, 14.0));
            y = draw_strip(&mut svg, pod, cpus, y + 16.0);
        }
        width = width.max(2.0 * MARGIN + f64::from(cpus.min(LINE)) * CELL);
        y += GAP;
    }
    svg.finish((width, y + MARGIN), title, CSS)
}

/// One more than the highest CPU number of any pod.
fn cpus_of(pods: &[&PodStrip]) -> u16 {
    let sets = pods.iter().filter_map(|pod| pod.cpuset.as_ref());
    let highest = sets.flat_map(CpuSet::iter).map(|CpuId(cpu)| cpu).max();
    highest.map_or(0, |cpu| cpu.saturating_add(1).min(CPUS_MAX))
}

/// Draws the CPUs of a pod from `top` downwards; returns the position below them.
fn draw_strip(svg: &mut Svg, pod: &PodStrip, cpus: u16, top: f64) -> f64 {
    let Some(cpuset) = &pod.cpuset else {
        return top + GAP;
    };
    for cpu in 0..cpus {
        let corner = (
            MARGIN + f64::from(cpu % LINE) * CELL,
            top + f64::from(cpu / LINE) * CELL,
        );
        svg.rect("cpu", corner, (CELL - 1.5, CELL - 1.5), 2.0);
        if cpuset.contains(CpuId(cpu)) {
            let half = (CELL - 1.5) / 2.0;
            let color = shade(pod.deployment, 0);
            let disc = Disc {
                center: (corner.0 + half, corner.1 + half),
                radius: half - 0.5,
                color: if pod.is_good { &color } else { NO_WORKER },
                is_main: pod.is_good,
                is_moved: false,
                label: "",
                title: &format!("cpu {cpu}"),
            };
            disc.draw(svg);
        }
    }
    top + f64::from(cpus.div_ceil(LINE)) * CELL + GAP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_shows_its_cpus_on_its_node() {
        let strip = |node: Option<&str>, cpus: Option<&str>| PodStrip {
            deployment: 0,
            node: node.map(str::to_owned),
            label: "default/fraud-1".to_owned(),
            verdict: "4/4 verified".to_owned(),
            is_good: true,
            cpuset: cpus.and_then(|c| c.parse().ok()),
        };
        let pods = [
            strip(Some("a"), Some("0-2")),
            strip(Some("a"), Some("70")),
            strip(None, None),
        ];
        let svg = status_svg("fraud", &pods);
        assert_eq!(svg.matches("<g><title>cpu").count(), 4);
        // Both pods of node a show all of its 71 CPUs, and the background is also a rectangle.
        assert_eq!(svg.matches("<rect").count(), 2 * 71 + 1);
        assert!(svg.contains("no node yet"));
    }
}
