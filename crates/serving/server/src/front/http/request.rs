//! Parses the body of an HTTP infer call: JSON, followed by the bytes of binary tensors.
//!
//! The array in `data` is cut out by its brackets, serde parses the rest, and `json_values` parses
//! the array directly into the reservation, so that each number is parsed once. If the wrong part
//! was cut out, serde parses the whole body with `data` as raw text. Unknown keys are ignored.
//! Bodies of protocol V1 are parsed by [`Table::from_instances`].

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::super::limits::{DIMENSIONS_MAX, TENSORS_MAX};
use super::super::request_error::RequestError;
use super::super::request_meta::{RequestMeta, whole_number};
use super::super::validate::{
    self, DeclaredTensor, OutputForm, OutputSelection, RegionParameters, RequestedOutput,
};
use super::bounded_list::BoundedList;
use albacore_engine::{Kind, KindSet, ModelInfo};
use albacore_extensions::{RegionSlice, SharedMemoryRegions};
use albacore_proto::array::SplitBody;
use albacore_rows::columns::{BinarySize, ColumnTensors, DeclaredColumn, is_column};
use albacore_rows::datatype::Datatype;
use albacore_rows::limits::COLUMNS_MAX;
use albacore_rows::row_writer::RowWriter;
use albacore_rows::{
    ColumnOrder, InvalidRows, Params, Table, binary_values, feature_names, invalid_json,
    json_values,
};

/// A validated infer call, except for the values of its rows, which
/// [`HttpInferRequest::write_rows`] checks.
#[derive(Debug)]
pub(super) struct HttpInferRequest<'a> {
    pub(super) rows: usize,
    pub(super) datatype: Datatype,
    /// The requested outputs, in order.
    pub(super) outputs: Vec<RequestedOutput>,
    /// The kinds of the requested outputs.
    pub(super) kinds: KindSet,
    pub(super) id: Option<String>,
    data: HttpInput<'a>,
    /// Column order of the request, if it differs from the model's.
    order: Option<ColumnOrder>,
    /// Number of columns of the request.
    columns: usize,
    timeout: Option<String>,
    priority: Option<String>,
    /// Parameters of MLflow and Vertex AI.
    pub(super) params: Params,
}

/// The data of an input tensor.
#[derive(Debug)]
pub(super) enum HttpInput<'a> {
    /// The text of an array, and the JSON that contains it.
    Text(&'a str, &'a [u8]),
    Bytes(&'a [u8]),
    /// The slice of shared memory that contains the bytes.
    Shared(RegionSlice),
    /// A table of protocol V1, MLflow and others.
    Table(Table<'a>),
    /// One tensor per column, with the column names.
    Columns(ColumnTensors, Vec<String>, Vec<HttpInput<'a>>),
}

/// The possible locations of the data in a body.
struct BodyData<'a> {
    /// The data of the only input, if it is in the JSON.
    text: Option<&'a str>,
    json: &'a [u8],
    /// The bytes after the JSON.
    binary: &'a [u8],
}

impl<'a> HttpInferRequest<'a> {
    /// Parses a body whose first `json_bytes` bytes are JSON; `None` means the whole body.
    pub(super) fn parse(
        model: &ModelInfo,
        body: &'a [u8],
        json_bytes: Option<usize>,
        regions: &SharedMemoryRegions,
    ) -> Result<Self, RequestError> {
        if json_bytes == Some(0) {
            return Self::parse_raw(model, body);
        }
        let (json, binary) = body
            .split_at_checked(json_bytes.unwrap_or(body.len()))
            .ok_or_else(|| {
                let (have, announced) = (body.len(), json_bytes.unwrap_or_default());
                RequestError::invalid(format!(
                    "Inference-Header-Content-Length is {announced}, but the body has {have} bytes"
                ))
            })?;
        if let Some(split) = SplitBody::new(json)
            && let Ok(document) = serde_json::from_slice::<InferBody<'_>>(&split.rest)
            && !document.is_columnar()
            && document
                .text()
                .is_some_and(|text| split.is_placeholder(text))
        {
            let data = BodyData {
                text: Some(split.array),
                json,
                binary,
            };
            return Self::validate(model, document, data, regions);
        }
        let document: InferBody<'a> =
            serde_json::from_slice(json).map_err(|error| invalid_body(json, &error))?;
        if document.is_columnar() {
            return Self::validate_columnar(model, document, binary, regions);
        }
        let data = BodyData {
            text: document.text(),
            json,
            binary,
        };
        Self::validate(model, document, data, regions)
    }

    /// Validates a parsed request with one input.
    fn validate(
        model: &ModelInfo,
        document: InferBody<'_>,
        BodyData { text, json, binary }: BodyData<'a>,
        regions: &SharedMemoryRegions,
    ) -> Result<Self, RequestError> {
        let [input] = &document.inputs.0[..] else {
            let inputs = document.inputs.0.len();
            return Err(RequestError::invalid(format!(
                "the request has {inputs} inputs; model {:?} takes one, \"input\"",
                model.name
            )));
        };
        let declared = DeclaredTensor {
            datatype: &input.datatype,
            shape: &input.shape.0,
        };
        let order = match document.feature_names() {
            Some(names) => feature_names::order_from_json(model, names.get())?,
            None => None,
        };
        let (datatype, rows) = validate::check_input(model, &declared, order.as_ref())?;
        let columns = order.as_ref().map_or(model.features, ColumnOrder::width);
        let values = rows * columns;
        let text = text.map(|text| (text, json));
        let need = BinarySize::Exact(values.saturating_mul(datatype.bytes()));
        let data = match input.region(regions)? {
            Some(slice) => input.shared(need, (text, binary), slice)?,
            None => input.data(values, need, text, binary)?,
        };
        let (outputs, kinds) = document.outputs(model, regions)?;
        Ok(Self {
            rows,
            datatype,
            outputs,
            kinds,
            data,
            order,
            columns,
            timeout: document.parameter(|all| all.timeout).map(str::to_owned),
            priority: document.parameter(|all| all.priority).map(str::to_owned),
            params: Params::default(),
            id: document.id,
        })
    }

    /// Validates a parsed columnar request, with one input per column.
    fn validate_columnar(
        model: &ModelInfo,
        document: InferBody<'a>,
        mut binary: &'a [u8],
        regions: &SharedMemoryRegions,
    ) -> Result<Self, RequestError> {
        let inputs = &document.inputs.0;
        let declared: Vec<_> = inputs.iter().map(Input::column).collect();
        let columns = ColumnTensors::check(model, &declared)?;
        let mut tensors = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.iter().enumerate() {
            let size = input.binary_size().map_or(0, |size| size.min(binary.len()));
            let (bytes, rest) = binary.split_at(size);
            binary = rest;
            let text = input.data.map(|data| (data.get(), &b""[..]));
            let need = columns.kinds()[index].binary_size(columns.rows);
            let data = match input.region(regions)? {
                Some(slice) => input.shared(need, (text, bytes), slice),
                None => input.data(columns.rows, need, text, bytes),
            };
            let data = data.map_err(|error| {
                let name = validate::excerpt(&input.name);
                RequestError::invalid(format!("column {name:?}: {error}"))
            })?;
            tensors.push(data);
        }
        if !binary.is_empty() {
            return Err(RequestError::invalid(format!(
                "{} bytes follow the binary_data_size bytes of the inputs",
                binary.len()
            )));
        }
        let names = inputs.iter().map(|input| input.name.clone()).collect();
        let (outputs, kinds) = document.outputs(model, regions)?;
        Ok(Self {
            rows: columns.rows,
            datatype: columns.row_datatype(),
            outputs,
            kinds,
            data: HttpInput::Columns(columns, names, tensors),
            order: None,
            columns: model.features,
            timeout: document.parameter(|all| all.timeout).map(str::to_owned),
            priority: document.parameter(|all| all.priority).map(str::to_owned),
            params: Params::default(),
            id: document.id,
        })
    }

    /// Parses a body without JSON: binary rows of the model's own type. The reply is the output
    /// `value` in binary form.
    fn parse_raw(model: &ModelInfo, body: &'a [u8]) -> Result<Self, RequestError> {
        let datatype = validate::input_datatype(model);
        let row_bytes = model.features * datatype.bytes();
        if body.is_empty() || row_bytes == 0 || !body.len().is_multiple_of(row_bytes) {
            return Err(RequestError::invalid(format!(
                "a body of {} bytes is not a whole number of rows: a row of model {:?} is {} {} \
                 values, {row_bytes} bytes",
                body.len(),
                model.name,
                model.features,
                datatype.name()
            )));
        }
        let (outputs, kinds) = OutputSelection::new(model).or_value(true);
        let rows = body.len() / row_bytes;
        let data = HttpInput::Bytes(body);
        Ok(Self {
            rows,
            datatype,
            outputs,
            kinds,
            id: None,
            data,
            order: None,
            columns: model.features,
            timeout: None,
            priority: None,
            params: Params::default(),
        })
    }

    /// Creates a request from a table. Its rows have the model's own type; the only output is
    /// `kind`.
    pub(super) fn from_table(
        model: &ModelInfo,
        table: Table<'a>,
        kind: Kind,
    ) -> Result<Self, RequestError> {
        let mut selection = OutputSelection::new(model);
        selection.add(validate::output_name(kind), false)?;
        let (outputs, kinds) = selection.or_value(false);
        Ok(Self {
            rows: table.rows,
            params: table.params,
            datatype: validate::input_datatype(model),
            outputs,
            kinds,
            id: None,
            data: HttpInput::Table(table),
            order: None,
            columns: model.features,
            timeout: None,
            priority: None,
        })
    }

    /// Applies the parameters `timeout` and `priority` to `meta`.
    pub(super) fn apply_parameters(&self, meta: &mut RequestMeta) -> Result<(), RequestError> {
        if let Some(text) = &self.timeout {
            meta.set_timeout(whole_number(text))?;
        }
        if let Some(text) = &self.priority {
            meta.set_priority(whole_number(text))?;
        }
        Ok(())
    }

    /// Checks the values and writes them as engine rows; `model` is the model of the request.
    pub(super) fn write_rows(
        &self,
        model: &ModelInfo,
        memory: &mut [u8],
    ) -> Result<(), RequestError> {
        match &self.order {
            None => self.write_as_sent(model, memory),
            Some(order) => order.write(self.datatype.element(), memory, |memory| {
                self.write_as_sent(model, memory)
            }),
        }
    }

    /// Writes the rows in the column order of the request.
    fn write_as_sent(&self, model: &ModelInfo, memory: &mut [u8]) -> Result<(), RequestError> {
        let (datatype, columns_sent) = (self.datatype, self.columns);
        match &self.data {
            HttpInput::Columns(columns, names, tensors) => {
                let written = columns.write(memory, |index, kind, memory| {
                    let written = match &tensors[index] {
                        &HttpInput::Text(text, _) => kind.write_json(text, memory),
                        &HttpInput::Bytes(bytes) => kind.write_bytes(bytes, memory),
                        HttpInput::Shared(slice) => validate::write_shared(slice, kind, memory),
                        // Column tensors have no other forms.
                        HttpInput::Table(_) | HttpInput::Columns(..) => Ok(()),
                    };
                    written.map_err(|error| {
                        let name = validate::excerpt(&names[index]);
                        InvalidRows::new(format!("column {name:?}: {error}"))
                    })
                });
                Ok(written?)
            }
            HttpInput::Table(table) => Ok(table.write(model, datatype, memory)?),
            &HttpInput::Text(text, json) => {
                let written =
                    json_values::write_json(RowWriter::new(datatype, memory), columns_sent, text);
                // If the JSON is invalid, that error takes precedence over the invalid number.
                written.map_err(|invalid_value| {
                    let error = serde_json::from_slice::<IgnoredAny>(json).err();
                    error.map_or(invalid_value.into(), |error| invalid_body(json, &error))
                })
            }
            &HttpInput::Bytes(bytes) => Ok(binary_values::write_bytes(datatype, bytes, memory)?),
            HttpInput::Shared(slice) => {
                Ok(validate::write_shared(slice, &datatype.into(), memory)?)
            }
        }
    }
}

/// The JSON body of an infer call.
#[derive(Deserialize)]
struct InferBody<'a> {
    id: Option<String>,
    #[serde(borrow)]
    parameters: Option<RequestParameters<'a>>,
    #[serde(borrow)]
    inputs: BoundedList<Input<'a>, COLUMNS_MAX>,
    #[serde(borrow)]
    outputs: Option<BoundedList<OutputJson<'a>, TENSORS_MAX>>,
}

#[derive(Deserialize)]
struct RequestParameters<'a> {
    binary_data_output: Option<bool>,
    // As raw text, so that the error for a wrong type can name the parameter.
    #[serde(borrow)]
    timeout: Option<&'a RawValue>,
    #[serde(borrow)]
    priority: Option<&'a RawValue>,
    #[serde(borrow)]
    feature_names: Option<&'a RawValue>,
    /// Of MLServer: `pd` declares one tensor per column.
    #[serde(borrow)]
    content_type: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Input<'a> {
    /// Required by the protocol. The name of the column, or ignored.
    name: String,
    shape: BoundedList<i64, DIMENSIONS_MAX>,
    datatype: String,
    #[serde(borrow)]
    parameters: Option<InputParameters<'a>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct InputParameters<'a> {
    binary_data_size: Option<u64>,
    #[serde(borrow)]
    feature_names: Option<&'a RawValue>,
    shared_memory_region: Option<String>,
    shared_memory_byte_size: Option<u64>,
    shared_memory_offset: Option<u64>,
}

#[derive(Deserialize)]
struct OutputJson<'a> {
    name: String,
    #[serde(borrow)]
    parameters: Option<OutputParameters<'a>>,
}

#[derive(Deserialize)]
struct OutputParameters<'a> {
    binary_data: Option<bool>,
    #[serde(borrow)]
    classification: Option<&'a RawValue>,
    shared_memory_region: Option<String>,
    shared_memory_byte_size: Option<u64>,
    shared_memory_offset: Option<u64>,
}

impl OutputParameters<'_> {
    fn form(&self, name: &str, regions: &SharedMemoryRegions) -> Result<OutputForm, RequestError> {
        let region = RegionParameters {
            region: self.shared_memory_region.as_deref(),
            byte_size: self.shared_memory_byte_size,
            offset: self.shared_memory_offset,
        };
        let classes = self.classification.map(|text| whole_number(text.get()));
        validate::output_form(name, classes, region.find(regions, name)?)
    }
}

impl Input<'_> {
    /// The input as a declared column.
    fn column(&self) -> DeclaredColumn<'_> {
        DeclaredColumn {
            name: &self.name,
            datatype: &self.datatype,
            shape: &self.shape.0,
        }
    }

    fn binary_size(&self) -> Option<usize> {
        let size = self.parameters.as_ref()?.binary_data_size?;
        usize::try_from(size).ok()
    }

    /// The slice with the values, if they are in shared memory.
    fn region(&self, regions: &SharedMemoryRegions) -> Result<Option<RegionSlice>, RequestError> {
        let parameters = self.parameters.as_ref();
        let region = parameters.map(|parameters| RegionParameters {
            region: parameters.shared_memory_region.as_deref(),
            byte_size: parameters.shared_memory_byte_size,
            offset: parameters.shared_memory_offset,
        });
        region.unwrap_or_default().find(regions, &self.name)
    }

    /// Checks an input in shared memory, which must not have values in the body, too.
    fn shared<'b>(
        &self,
        need: BinarySize,
        data: (Option<impl Sized>, &[u8]),
        slice: RegionSlice,
    ) -> Result<HttpInput<'b>, RequestError> {
        let has_data = data.0.is_some() || !data.1.is_empty();
        validate::check_shared(need, has_data, &slice)?;
        Ok(HttpInput::Shared(slice))
    }

    /// Locates the values. Checks their size before memory is allocated for the declared shape.
    fn data<'b>(
        &self,
        values: usize,
        need: BinarySize,
        text: Option<(&'b str, &'b [u8])>,
        binary: &'b [u8],
    ) -> Result<HttpInput<'b>, RequestError> {
        let parameters = self.parameters.as_ref();
        match (
            text,
            parameters.and_then(|parameters| parameters.binary_data_size),
        ) {
            (None, Some(announced)) => {
                if announced != binary.len() as u64 || !need.admits(binary.len()) {
                    return Err(RequestError::invalid(format!(
                        "input \"input\" needs {need} bytes of binary data for its shape; \
                         binary_data_size is {announced} and {} bytes follow the JSON",
                        binary.len()
                    )));
                }
                Ok(HttpInput::Bytes(binary))
            }
            (Some(_), Some(_)) => Err(RequestError::invalid(
                "input \"input\" has both data and binary_data_size; send one of them",
            )),
            (None, None) => Err(RequestError::invalid("input \"input\" has no data")),
            (Some(_), None) if !binary.is_empty() => Err(RequestError::invalid(format!(
                "{} bytes follow the JSON, but input \"input\" has no binary_data_size",
                binary.len()
            ))),
            (Some((text, json)), None) => {
                // Each value has at least one digit and one separator.
                if text.len() / 2 < values {
                    return Err(RequestError::invalid(format!(
                        "input \"input\" has less data than the {values} values of its shape"
                    )));
                }
                Ok(HttpInput::Text(text, json))
            }
        }
    }
}

impl<'a> InferBody<'a> {
    /// Whether the request is columnar: several inputs, or one that is declared as a column.
    fn is_columnar(&self) -> bool {
        let parameters = self.parameters.as_ref();
        let content_type = parameters.and_then(|parameters| parameters.content_type);
        let is_pandas = content_type.is_some_and(|value| value.get() == "\"pd\"");
        match &self.inputs.0[..] {
            [input] => is_column(&input.datatype, &input.shape.0, is_pandas),
            inputs => !inputs.is_empty(),
        }
    }

    /// The data of the only input, if it is in the JSON.
    fn text(&self) -> Option<&'a str> {
        match &self.inputs.0[..] {
            [input] => input.data.map(RawValue::get),
            _ => None,
        }
    }

    /// The column names of the request: a parameter of the input, or else of the request.
    fn feature_names(&self) -> Option<&'a RawValue> {
        let input = self.inputs.0.first()?.parameters.as_ref();
        let names = input.and_then(|parameters| parameters.feature_names);
        names.or_else(|| self.parameters.as_ref()?.feature_names)
    }

    /// The raw text of a request parameter.
    fn parameter(
        &self,
        get: impl Fn(&RequestParameters<'a>) -> Option<&'a RawValue>,
    ) -> Option<&'a str> {
        self.parameters.as_ref().and_then(get).map(RawValue::get)
    }

    fn outputs(
        &self,
        model: &ModelInfo,
        regions: &SharedMemoryRegions,
    ) -> Result<(Vec<RequestedOutput>, KindSet), RequestError> {
        let binary_by_default = self
            .parameters
            .as_ref()
            .and_then(|p| p.binary_data_output)
            .unwrap_or(false);
        let mut selection = OutputSelection::new(model);
        for output in self.outputs.iter().flat_map(|outputs| &outputs.0) {
            let Some(parameters) = &output.parameters else {
                selection.add(&output.name, binary_by_default)?;
                continue;
            };
            let binary = parameters.binary_data.unwrap_or(binary_by_default);
            let form = parameters.form(&output.name, regions)?;
            selection.add_as(&output.name, binary, form)?;
        }
        Ok(selection.or_default(binary_by_default))
    }
}

/// Returns the error for an invalid body. It contains the field, or for invalid JSON the position,
/// with a hint for bodies that contain NaN or binary data.
fn invalid_body(json: &[u8], error: &serde_json::Error) -> RequestError {
    if error.is_data() {
        let mut reader = serde_json::Deserializer::from_slice(json);
        // A second pass finds the path of the field, so that valid requests do not pay for it.
        if let Err(error) = serde_path_to_error::deserialize::<_, InferBody<'_>>(&mut reader) {
            return invalid_field(&error.path().to_string(), &error.inner().to_string());
        }
    }
    invalid_json(json, error).into()
}

/// Returns the error for the field with this path, `.` for the whole body.
fn invalid_field(path: &str, problem: &str) -> RequestError {
    const QUOTED_CHARS_MAX: usize = 200;
    let (problem, _) = problem.rsplit_once(" at line ").unwrap_or((problem, ""));
    // serde quotes a string of the wrong type in full.
    let problem: String = problem.chars().take(QUOTED_CHARS_MAX).collect();
    let location = match path {
        "." => String::new(),
        path => format!(
            "{}: ",
            path.chars().take(QUOTED_CHARS_MAX).collect::<String>()
        ),
    };
    RequestError::invalid(format!(
        "the body is not an infer request: {location}{problem}"
    ))
}

#[cfg(test)]
mod tests;
