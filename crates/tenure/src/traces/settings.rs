//! Where spans go and which: `[traces]`, and the variables that OpenTelemetry has for it.
//!
//! The configuration comes first. In: texts. Out: [`TraceSettings`], or what is wrong with them.

use std::time::Duration;

use crate::failure::Failure;

/// Where spans go and which.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TraceSettings {
    /// Where they are posted to.
    pub(super) url: String,
    /// Headers of each post.
    pub(super) headers: Vec<(String, String)>,
    /// How long a post may take.
    pub(super) timeout: Duration,
    /// The share of requests without a parent that are traced.
    pub(super) share: f64,
    /// Spans that wait, at most.
    pub(super) queue: usize,
    /// Spans in one post, at most.
    pub(super) batch: usize,
    /// How long a span waits for others.
    pub(super) delay: Duration,
    /// What the process says of itself with every post.
    pub(super) resource: Vec<(String, String)>,
}

impl TraceSettings {
    /// These settings. `None` if nothing is to be traced, or no endpoint for spans is set.
    pub(crate) fn read(
        endpoint: Option<&str>,
        percent: Option<u32>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Failure> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is_disabled =
            variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if is_disabled || variable("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter == "none") {
            return Ok(None);
        }
        let at_base = |base: &str| format!("{}/v1/traces", base.trim_end_matches('/'));
        let url = endpoint
            .map(at_base)
            .or_else(|| variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
            .or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT").as_deref().map(at_base));
        let Some(url) = url else { return Ok(None) };
        let of_traces = |name: &str| {
            variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        if let Some(protocol) = of_traces("PROTOCOL").filter(|protocol| protocol != "http/protobuf") {
            return Err(Failure::new(format!("traces cannot be sent as `{protocol}`"))
                .hint("set OTEL_EXPORTER_OTLP_PROTOCOL to `http/protobuf`, and name the collector's port for HTTP, often 4318"));
        }
        Ok(Some(Self {
            url,
            headers: pairs("OTEL_EXPORTER_OTLP_HEADERS", &of_traces("HEADERS").unwrap_or_default())?,
            timeout: milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", of_traces("TIMEOUT"), 10_000)?,
            share: match percent {
                Some(percent) => f64::from(percent) / 100.0,
                None => sampler(
                    variable("OTEL_TRACES_SAMPLER").as_deref(),
                    variable("OTEL_TRACES_SAMPLER_ARG").as_deref(),
                )?,
            },
            queue: number("OTEL_BSP_MAX_QUEUE_SIZE", variable("OTEL_BSP_MAX_QUEUE_SIZE"), 2_048)?,
            batch: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), 512)?,
            delay: milliseconds("OTEL_BSP_SCHEDULE_DELAY", variable("OTEL_BSP_SCHEDULE_DELAY"), 5_000)?,
            resource: resource(&variable)?,
        }))
    }
}

fn resource(variable: &impl Fn(&str) -> Option<String>) -> Result<Vec<(String, String)>, Failure> {
    let mut resource =
        pairs("OTEL_RESOURCE_ATTRIBUTES", &variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default())?;
    let name = variable("OTEL_SERVICE_NAME");
    if name.is_some() || !resource.iter().any(|(key, _)| key == "service.name") {
        resource.retain(|(key, _)| key != "service.name");
        resource.push(("service.name".to_owned(), name.unwrap_or_else(|| "tenure".to_owned())));
    }
    if !resource.iter().any(|(key, _)| key == "service.version") {
        resource.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    }
    Ok(resource)
}

/// The share of requests without a parent. With a parent, the parent decides in any case.
fn sampler(name: Option<&str>, argument: Option<&str>) -> Result<f64, Failure> {
    /// The share that is traced by default.
    const DEFAULT: f64 = 0.01;
    let share = |default: f64| match argument {
        None => Ok(default),
        Some(text) => text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| {
            Failure::new(format!("OTEL_TRACES_SAMPLER_ARG is `{text}`"))
                .hint("it is a share from 0 to 1, such as 0.05")
        }),
    };
    match name {
        None => share(DEFAULT),
        Some("always_on" | "parentbased_always_on") => Ok(1.0),
        Some("always_off" | "parentbased_always_off") => Ok(0.0),
        Some("traceidratio" | "parentbased_traceidratio") => share(1.0),
        Some(other) => Err(Failure::new(format!("OTEL_TRACES_SAMPLER is `{other}`, which is not supported"))
            .hint("take `parentbased_traceidratio` with OTEL_TRACES_SAMPLER_ARG, or leave both out")),
    }
}

/// `name=value,name=value`, with values in percent-encoding.
fn pairs(variable: &str, text: &str) -> Result<Vec<(String, String)>, Failure> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().to_owned(), decoded(value.trim())))
    };
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            // The text itself stays out of the message: it may carry a key.
            pair(part).ok_or_else(|| {
                Failure::new(format!("{variable} has a part without `=`"))
                    .hint("write `NAME=VALUE,NAME=VALUE`")
            })
        })
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => (bytes.push(byte), rest = &after[2..]),
            None => (bytes.push(*first), rest = after),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn number(variable: &str, text: Option<String>, default: usize) -> Result<usize, Failure> {
    let Some(text) = text else { return Ok(default) };
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| {
        Failure::new(format!("{variable} is `{text}`")).hint("it is a number from 1 to 1000000")
    })
}

fn milliseconds(variable: &str, text: Option<String>, default: usize) -> Result<Duration, Failure> {
    number(variable, text, default).map(|ms| Duration::from_millis(ms as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        endpoint: Option<&str>,
        percent: Option<u32>,
        variables: &[(&str, &str)],
    ) -> Result<Option<TraceSettings>, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        TraceSettings::read(endpoint, percent, variable).map_err(|failure| failure.to_string())
    }

    #[test]
    fn nothing_is_traced_unless_a_collector_is_named() {
        assert_eq!(read(None, Some(100), &[]), Ok(None));
        let named = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        assert_eq!(read(None, None, &[named]).unwrap().unwrap().url, "http://collector:4318/v1/traces");
        assert_eq!(read(None, None, &[named, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
        assert_eq!(read(None, None, &[named, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other:1/path");
        assert_eq!(read(None, None, &[named, own]).unwrap().unwrap().url, "http://other:1/path");
        let configured = read(Some("https://here"), None, &[named, own]).unwrap().unwrap();
        assert_eq!(configured.url, "https://here/v1/traces", "the configuration comes first");
    }

    #[test]
    fn variables_of_opentelemetry_are_honoured() {
        let settings = read(
            Some("http://c"),
            None,
            &[
                ("OTEL_SERVICE_NAME", "gateway"),
                ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test%2C1,service.name=no"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc"),
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "7"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ],
        );
        let settings = settings.unwrap().unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            settings.resource[..2],
            [pair("deployment.environment", "test,1"), pair("service.name", "gateway")]
        );
        assert_eq!(settings.headers, [pair("authorization", "Bearer abc")]);
        assert_eq!((settings.share, settings.queue, settings.timeout), (0.25, 7, Duration::from_millis(250)));
        assert_eq!(read(Some("http://c"), None, &[]).unwrap().unwrap().share, 0.01);
        assert_eq!(
            read(Some("http://c"), Some(50), &[("OTEL_TRACES_SAMPLER", "always_off")])
                .unwrap()
                .unwrap()
                .share,
            0.5
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |name, value| read(Some("http://c"), None, &[(name, value)]).unwrap_err();
        assert!(wrong("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").contains("cannot be sent as `grpc`"));
        assert!(wrong("OTEL_TRACES_SAMPLER", "jaeger_remote").contains("not supported"));
        assert!(wrong("OTEL_BSP_MAX_QUEUE_SIZE", "none").contains("OTEL_BSP_MAX_QUEUE_SIZE is `none`"));
        assert!(!wrong("OTEL_EXPORTER_OTLP_HEADERS", "secret").contains("secret"));
    }
}
