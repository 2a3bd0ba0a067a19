package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"farhand/wire"
	"farhand/wire/transcript"
)

func scenes(t testing.TB) []transcript.Scene {
	t.Helper()
	all, err := transcript.Read("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTranscripts plays the golden transcripts through decoding and encoding:
// each frame fits the Go type of its payload without a key left over, and comes
// out of it as it went in.
func TestTranscripts(t *testing.T) {
	for _, s := range scenes(t) {
		if s.Kind == "raw" {
			for _, f := range s.Frames {
				if e, err := wire.DecodeEnvelope(f.Text); f.Inbound && err == nil {
					t.Errorf("%s line %d: taken as %+v", s.Name(), f.Line, e)
				}
			}
			continue
		}
		for _, f := range s.Frames {
			if err := roundTrip(f); err != "" {
				t.Errorf("%s line %d: %s", s.Name(), f.Line, err)
			}
		}
	}
}

func roundTrip(f transcript.Frame) string {
	e, err := wire.DecodeEnvelope(f.Text)
	if err != nil {
		return err.Error()
	}
	if e.Type == wire.TFileWrite {
		w, err := wire.DecodeFileWrite(e.Payload)
		if err != nil && wire.AsError(err).Details["reason"] != "invalid_base64" {
			return err.Error()
		}
		if err == nil && (w.Path == "" || len(w.Content) == 0) {
			return "FILE_WRITE lost its path or content"
		}
		return ""
	}
	payload := transcript.Payload(e.Type)
	if payload == nil {
		if m, ok := wire.MethodOf(e.Type); ok && !m.Refused {
			return "no payload type for " + string(e.Type)
		}
		return ""
	}
	strict := json.NewDecoder(bytes.NewReader(e.Payload))
	strict.DisallowUnknownFields()
	if err := strict.Decode(payload); err != nil {
		if f.Inbound {
			return "" // platforms may send more than we know, and worse
		}
		return err.Error()
	}
	again, err := wire.Message{Type: e.Type, ID: e.ID, Version: e.Version, PendingCapacity: e.PendingCapacity, Payload: payload}.Encode()
	if err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	if err := again.WriteFrame(&b); err != nil {
		return err.Error()
	}
	if size := again.Size(); size < b.Len() {
		return "a frame larger than it says"
	}
	e2, err := wire.DecodeEnvelope(b.Bytes())
	if err != nil {
		return err.Error()
	}
	if e2.ID != e.ID || e2.Type != e.Type || e2.Version != e.Version {
		return "envelope changed: " + b.String()
	}
	var was, is any
	json.Unmarshal(e.Payload, &was)
	json.Unmarshal(e2.Payload, &is)
	if f.Inbound {
		was, is = withoutNull(was), withoutNull(is)
	}
	if !reflect.DeepEqual(was, is) {
		return "payload changed: " + string(e2.Payload)
	}
	return ""
}

// withoutNull drops what is null, empty lists of envelopes apart: requests may
// leave optional keys out or set them to null.
func withoutNull(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any)
	for k, x := range m {
		if x != nil && x != false && x != 0.0 && x != "" {
			out[k] = withoutNull(x)
		}
	}
	return out
}

// TestEveryMethodHasATranscript: so does every answer and every error code that
// a device puts on the wire.
func TestEveryMethodHasATranscript(t *testing.T) {
	sent := map[wire.Type]bool{}
	codes := map[wire.Code]bool{}
	for _, s := range scenes(t) {
		for _, f := range s.Frames {
			e, err := wire.DecodeEnvelope(f.Text)
			if err != nil {
				continue
			}
			sent[e.Type] = true
			if e.Type == wire.TError {
				var we wire.Error
				json.Unmarshal(e.Payload, &we)
				codes[we.Code] = true
			}
		}
	}
	for _, m := range wire.Methods() {
		if !sent[m.Request] {
			t.Errorf("no transcript of %s", m.Request)
		}
		if !m.Refused && !m.OneWay() && !sent[m.Response] {
			t.Errorf("no transcript of %s", m.Response)
		}
	}
	for _, typ := range []wire.Type{wire.THello, wire.THelloAck, wire.TStatus, wire.TError, wire.TSessionRevoked, wire.TLocalLLMCompletionChunk, wire.TStreamData} {
		if !sent[typ] {
			t.Errorf("no transcript of %s", typ)
		}
	}
	for _, c := range []wire.Code{
		wire.PathOutsideAllowedRoot, wire.PathInvalidChars, wire.PathNotFound, wire.PathNotEmpty, wire.PathExists, wire.ShellNotAvailable,
		wire.CapabilityNotGranted, wire.ShimOverloaded, wire.InternalError, wire.FileTooLarge, wire.DirectoryReferenceInvalid,
		wire.RootGrantInvalid, wire.SessionNotAttached, wire.SessionAlreadyActive, wire.SessionRevisionMismatch, wire.FeatureNotSupported,
		wire.ModelNotAvailable, wire.LocalLLMBusy, wire.LocalLLMFailed, wire.HardwareNotFound, wire.HardwareAmbiguous, wire.HardwareBusy,
		wire.HardwareOpenFailed, wire.HardwareTransferFailed, wire.DeviceGone, wire.InvalidArgument, wire.HardwareNotGranted, wire.SerialStale, wire.USBStale, wire.GPIOStale, wire.StreamNotFound, wire.TransferNotFound, wire.TransferOffset, wire.TransferMismatch, wire.SourceChanged, wire.DiskFull, wire.ReadOnlyDisk, wire.PathNotAllowed,
		wire.TargetNotAllowed,
	} {
		if !codes[c] {
			t.Errorf("no transcript of an ERROR with %s", c)
		}
	}
}
