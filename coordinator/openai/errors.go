package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/speculation"
)

// The error types that OpenAI's clients know.
const (
	typeRequest   = "invalid_request_error"
	typeRateLimit = "rate_limit_error"
	typeServer    = "server_error"
)

// apiError is OpenAI's error object.
type apiError struct {
	status  int
	Message string
	Type    string
	Param   string
	Code    string
}

func (e *apiError) Error() string { return e.Message }

// body is the error's JSON form, in which empty fields are null.
func (e *apiError) body() any {
	null := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	return map[string]any{"error": map[string]any{"message": e.Message, "type": e.Type, "param": null(e.Param), "code": null(e.Code)}}
}

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: typeRequest, Param: param}
}

func noSuchModel(name, served string) *apiError {
	return &apiError{
		status: http.StatusNotFound, Message: fmt.Sprintf("the model %q is not served here; %q is", name, served),
		Type: typeRequest, Param: "model", Code: "model_not_found",
	}
}

// toAPI gives any error its place in OpenAI's scheme.
func toAPI(err error) *apiError {
	var api *apiError
	var request *coordinator.RequestError
	var param *speculation.ParamError
	var group *coordinator.GroupError
	unavailable := &apiError{status: http.StatusServiceUnavailable, Message: err.Error(), Type: typeServer, Code: "unavailable"}
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &request):
		return badRequest(request.Param, "%v", err)
	case errors.As(err, &param):
		return badRequest(param.Param, "%v", err)
	case errors.Is(err, coordinator.ErrQueueFull):
		return &apiError{status: http.StatusTooManyRequests, Message: err.Error(), Type: typeRateLimit, Code: "queue_full"}
	case errors.Is(err, coordinator.ErrDraining), errors.Is(err, coordinator.ErrClosed), errors.As(err, &group):
		return unavailable
	case errors.Is(err, context.DeadlineExceeded):
		return &apiError{status: http.StatusGatewayTimeout, Message: "the request's deadline passed", Type: typeServer, Code: "deadline_exceeded"}
	}
	return &apiError{status: http.StatusInternalServerError, Message: err.Error(), Type: typeServer}
}

// finishError is the error of a generation that did not come to its own end.
func finishError(f *coordinator.Finish) error {
	switch f.Reason {
	case coordinator.FinishError:
		return f.Err
	case coordinator.FinishDeadline:
		return context.DeadlineExceeded
	case coordinator.FinishCancelled:
		return &apiError{status: http.StatusServiceUnavailable, Message: "the request was cancelled", Type: typeServer, Code: "cancelled"}
	}
	return nil
}

func writeError(w http.ResponseWriter, err error) {
	api := toAPI(err)
	if api.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, api.status, api.body())
}
