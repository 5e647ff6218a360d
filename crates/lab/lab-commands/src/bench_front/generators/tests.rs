use super::*;

#[test]
fn the_figures_of_wrk_are_read_in_each_unit() {
    let text = "    Latency     1.68ms    1.35ms  13.05ms   88.50%\n  Latency Distribution\n     50%  164.00us\n     99%    1.20ms\n\
                  70 requests in 1.00s, 5.92MB read\nRequests/sec:  73331.25\nTransfer/sec: 5.92MB\n";
    let read = Measured {
        rate: 73_331.25,
        p50_micros: 164.0,
    };
    assert_eq!(wrk_figures(text), Some(read));
    assert_eq!(micros("1.50ms"), Some(1500.0));
    assert_eq!(micros("2.00s"), Some(2e6));
    assert_eq!(wrk_figures("unable to connect"), None);
}

#[test]
fn the_figures_of_h2load_are_read() {
    let text = "finished in 1.00s, 12345.67 req/s, 1.21MB/s\n\
                traffic: 196B (196) total, 81B (81) headers (space savings 0.00%), 82B (82) data\n";
    assert_eq!(h2load_rate(text), Some(12_345.67));
    assert_eq!(data_bytes(text), Some(82));
    assert_eq!(
        logged_p50("1\t200\t30\n2\t200\t10\n3\t200\t20\n"),
        Some(20.0)
    );
    assert_eq!(logged_p50(""), None);
}
