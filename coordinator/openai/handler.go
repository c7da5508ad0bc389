package openai

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/octet-run/octet/coordinator"
)

// Config is what the HTTP server answers with.
type Config struct {
	Coordinator *coordinator.Coordinator
	Metrics     *Metrics // nil: no /metrics
	// Token, if not empty, must come as "Authorization: Bearer TOKEN" with every
	// request but those for health.
	Token string
	// Started is when the model was loaded, for /v1/models.
	Started time.Time
}

// maxBody is the most bytes of a request.
const maxBody = 32 << 20

// handler answers requests.
type handler struct {
	config Config
	limits coordinator.Config
}

// NewHandler returns the HTTP interface of a coordinator.
func NewHandler(config Config) http.Handler {
	h := &handler{config: config, limits: config.Coordinator.Config()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", h.live)
	mux.HandleFunc("GET /ready", h.ready)
	mux.HandleFunc("GET /health", h.ready)
	mux.HandleFunc("GET /v1/models", h.authorized(h.models))
	mux.HandleFunc("GET /v1/models/{model...}", h.authorized(h.model))
	mux.HandleFunc("POST /v1/completions", h.authorized(h.completions))
	mux.HandleFunc("POST /v1/chat/completions", h.authorized(h.chatCompletions))
	if config.Metrics != nil {
		mux.HandleFunc("GET /metrics", h.authorized(config.Metrics.handler(config.Coordinator).ServeHTTP))
	}
	mux.HandleFunc("/", h.authorized(h.unknown))
	return mux
}

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// Serve answers on the listener until ctx ends. Requests under way then get until
// grace is over.
func Serve(ctx context.Context, listener net.Listener, h http.Handler, grace time.Duration) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := server.Shutdown(end)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-served
	return err
}

// authorized lets a request through that carries the token.
func (h *handler) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if h.config.Token != "" && (!ok || subtle.ConstantTimeCompare([]byte(given), []byte(h.config.Token)) != 1) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, &apiError{status: http.StatusUnauthorized, Message: "the request carries no valid bearer token", Type: typeRequest, Code: "invalid_api_key"})
			return
		}
		next(w, r)
	}
}

func (h *handler) unknown(w http.ResponseWriter, r *http.Request) {
	known := map[string]string{"/v1/completions": "POST", "/v1/chat/completions": "POST", "/v1/models": "GET", "/metrics": "GET"}
	if method, ok := known[r.URL.Path]; ok && method != r.Method {
		w.Header().Set("Allow", method)
		writeError(w, &apiError{status: http.StatusMethodNotAllowed, Message: r.URL.Path + " takes " + method + ", not " + r.Method, Type: typeRequest})
		return
	}
	writeError(w, &apiError{status: http.StatusNotFound, Message: "there is no " + r.Method + " " + r.URL.Path, Type: typeRequest})
}

// modelObject is one entry of /v1/models.
type modelObject struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"`
}

func (h *handler) modelObject() modelObject {
	return modelObject{ID: h.limits.Model, Object: "model", Created: h.config.Started.Unix(), OwnedBy: "octet", MaxModelLen: h.limits.Context}
}

func (h *handler) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []modelObject{h.modelObject()}})
}

func (h *handler) model(w http.ResponseWriter, r *http.Request) {
	if name := r.PathValue("model"); name != h.limits.Model {
		writeError(w, noSuchModel(name, h.limits.Model))
		return
	}
	writeJSON(w, http.StatusOK, h.modelObject())
}

// live says that the process answers.
func (h *handler) live(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
}

// ready says that requests are taken and rounds make progress.
func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	stats := h.config.Coordinator.Stats()
	if !stats.Ready {
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "unavailable", "reason": stats.Reason, "epoch": stats.Epoch})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "epoch": stats.Epoch, "running": stats.Running, "waiting": stats.Waiting})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	// An error here is the client gone; there is nobody to tell.
	_ = encoder.Encode(value)
}

// readFields reads the body as one JSON object.
func readFields(w http.ResponseWriter, r *http.Request) (map[string]json.RawMessage, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, Message: "the request body is larger than 32 MiB", Type: typeRequest}
	}
	if err != nil {
		return nil, badRequest("", "the request body cannot be read: %v", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, badRequest("", "the request body is not a JSON object: %v", err)
	}
	return fields, nil
}
