package daemon

import (
	"context"
	"os"
	"path/filepath"
)

// serviceDir is $RUNTIME_DIRECTORY of farhandd.service.
const serviceDir = "/run/farhand/daemon"

// FindLocal is the daemon with this environment and state directory, whether it was
// started by hand or by the service manager.
func FindLocal(ctx context.Context, runtimeDir, stateDir string) Local {
	return findLocal(ctx, runtimeDir, stateDir, serviceDir)
}

func findLocal(ctx context.Context, runtimeDir, stateDir, serviceDir string) Local {
	own := Local{Socket: SocketPath(runtimeDir, stateDir)}
	if runtimeDir != "" {
		return own
	}
	if _, err := os.Lstat(own.Socket); err == nil {
		return own
	}
	service := Local{Socket: SocketPath(serviceDir, "")}
	if s, err := service.Status(ctx); err == nil && (s.StateDir == stateDir || s.StateDir == filepath.Join(serviceDir, memoryName)) {
		return service
	}
	return own
}
