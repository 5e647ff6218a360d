//! Sends requests to the HTTP server of a pod through the API server, with the permissions of the
//! user of the command line.

use hyper::Request;

use crate::limits::REQUEST_TIME_MAX;
use crate::{Cluster, ClusterError, ObjectKey};

impl Cluster {
    /// Returns the response of a pod's HTTP server to a GET of `path`, which begins with `/`, as
    /// text.
    ///
    /// # Errors
    /// The API server rejects the request (it requires permission to get `pods/proxy`) or cannot
    /// reach the pod; the pod responds with an error, or not before the timeout.
    pub async fn get_from_pod(
        &self,
        pod: &ObjectKey,
        port: u16,
        path: &str,
    ) -> Result<String, ClusterError> {
        let action = format!("get {path} of pod {pod}");
        let ObjectKey { namespace, name } = pod;
        let url = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy{path}");
        let request = Request::get(url).body(Vec::new());
        let request = request.map_err(|error| ClusterError::InvalidRequest {
            action: action.clone(),
            what: error.to_string(),
        })?;
        let answer = self.client.request_text(request);
        match tokio::time::timeout(REQUEST_TIME_MAX, answer).await {
            Ok(answer) => answer.map_err(|error| self.explain(&action, error)),
            Err(_) => Err(ClusterError::TimedOut {
                action,
                seconds: REQUEST_TIME_MAX.as_secs(),
            }),
        }
    }
}
