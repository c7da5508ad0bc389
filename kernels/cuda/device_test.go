//go:build cuda

package cuda

import (
	"errors"
	"runtime"
	"testing"
)

func TestWithoutADriverOpenSaysSo(t *testing.T) {
	if Count() > 0 {
		t.Skip("this machine has a device")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err := Open(0)
	var e *Error
	if !errors.As(err, &e) || e.Code != 100 {
		t.Fatalf("Open without a driver: %v, want CUresult 100", err)
	}
}
