package shim

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"farhand/internal/sorted"
	"farhand/wire"
)

// What the platform takes in a HELLO; anything else is close 4400 for ever.
var (
	machineIDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`)
	versionForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)
	platforms     = []string{"darwin", "linux", "windows", "wsl2"}
	arches        = []string{"x86_64", "arm64"}
)

// hello makes the HELLO of a socket.
func (s *Shim) hello(ctx context.Context, kind wire.Channel, root string) (wire.Message, wire.Capabilities, error) {
	h, err := s.cfg.Hello(ctx, kind, root)
	if err != nil {
		return wire.Message{}, nil, fmt.Errorf("hello: %w", err)
	}
	if err := completeHello(&h, kind, root); err != nil {
		return wire.Message{}, nil, &Halted{Code: wire.CloseBadHello, Reason: err.Error()}
	}
	m := wire.Message{Type: wire.THello, ID: uuid.NewString(), Version: wire.ProtocolVersion, Payload: &h}
	if err := fitHello(&h, m); err != nil {
		return wire.Message{}, nil, &Halted{Code: wire.CloseBadHello, Reason: err.Error()}
	}
	return m, h.Capabilities, nil
}

// completeHello sets what isn't the daemon's to know, cleans what can be
// cleaned, and refuses what the platform would refuse.
func completeHello(h *wire.Hello, kind wire.Channel, root string) error {
	h.ProtocolVersion = wire.ProtocolVersion
	h.DisplayName = wire.Clean(h.DisplayName, wire.MaxDisplayName)
	h.AllowedRoot = nil
	caps := make(wire.Capabilities, 0, len(h.Capabilities)+1)
	if kind == wire.Control {
		caps = append(caps, wire.DirectoryBrowse)
	} else {
		h.AllowedRoot = &root
		if err := checkRootText(root); err != nil {
			return err
		}
	}
	for _, c := range h.Capabilities {
		if c != wire.DirectoryBrowse && !caps.Has(c) {
			caps = append(caps, c)
		}
	}
	h.Capabilities = caps
	if !caps.Has(wire.LocalLLM) {
		h.LocalLLMModels = nil
	}
	h.LocalLLMModels = orEmpty(h.LocalLLMModels)
	h.HardwareDevices = slices.Clone(orEmpty(h.HardwareDevices))
	h.ComputerUse = orEmpty(h.ComputerUse)
	h.ComputerUseCoarse = orEmpty(h.ComputerUseCoarse)
	h.RecordingChannels = orEmpty(h.RecordingChannels)
	h.RecordingRoutes = orEmpty(h.RecordingRoutes)
	switch {
	case len(h.MachineID) > wire.MaxMachineID, !machineIDForm.MatchString(h.MachineID):
		return fmt.Errorf("machine id %q doesn't fit the protocol", h.MachineID)
	case !slices.Contains(platforms, h.Platform):
		return fmt.Errorf("platform %q isn't known to the protocol", h.Platform)
	case !slices.Contains(arches, h.Arch):
		return fmt.Errorf("architecture %q isn't known to the protocol", h.Arch)
	}
	if len(h.ShimVersion) > 64 || !versionForm.MatchString(h.ShimVersion) {
		h.ShimVersion = "0"
	}
	return nil
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// fitHello makes a HELLO fit wire.MaxHello: first the aliases of devices go,
// then what describes them, then devices beyond the first 200 by id and further
// ones as far as needed, and last the names of models.
func fitHello(h *wire.Hello, m wire.Message) error {
	sorted.By(h.HardwareDevices, func(a, b wire.HardwareDevice) int { return strings.Compare(a.ID, b.ID) })
	fits := func() bool {
		frame, err := m.Encode()
		return err == nil && frame.Size() <= wire.MaxHello
	}
	if _, err := m.Encode(); err != nil {
		return err
	}
	steps := []func(){
		func() { eachDevice(h, func(d *wire.HardwareDevice) { d.Aliases = nil }) },
		func() {
			eachDevice(h, func(d *wire.HardwareDevice) { d.Desc, d.Manufacturer, d.Product, d.Driver = "", "", "", "" })
		},
		func() { h.HardwareDevices = h.HardwareDevices[:min(len(h.HardwareDevices), wire.MaxHelloDevices)] },
	}
	for _, step := range steps {
		if fits() {
			return nil
		}
		h.HardwareTruncated = true
		step()
	}
	for len(h.HardwareDevices) > 0 && !fits() {
		h.HardwareDevices = h.HardwareDevices[:len(h.HardwareDevices)*9/10]
	}
	for len(h.LocalLLMModels) > 0 && !fits() {
		h.LocalLLMModels = h.LocalLLMModels[:len(h.LocalLLMModels)*9/10]
	}
	if !fits() {
		return errors.New("HELLO is larger than the platform takes")
	}
	return nil
}

func eachDevice(h *wire.Hello, f func(*wire.HardwareDevice)) {
	for i := range h.HardwareDevices {
		f(&h.HardwareDevices[i])
	}
}

// checkRootText says why a path can't be the allowed_root of a HELLO.
func checkRootText(path string) error {
	switch {
	case strings.TrimSpace(path) == "":
		return errors.New("the path is blank")
	case utf8.RuneCountInString(path) > wire.MaxAllowedRoot:
		return errors.New("the path is longer than the platform takes")
	case !wire.Plain(path):
		return errors.New("the path has a character that the platform refuses")
	}
	return nil
}
