// Package transcript reads the golden transcripts of the protocol
// (wire/testdata/*.frames), which say frame by frame what goes over a socket.
// The same files are played through encoding and decoding and against a shim.
//
// A line is one of
//
//	# why                      what the next frames show
//	@ data files shell max=1   a new scene: the socket, what is granted there,
//	                           and max_concurrent
//	> frame                    from the platform to the device
//	< frame                    from the device to the platform
//
// A request that no answer follows must not be answered. In a frame the text
// "$name" stands for a value that isn't known beforehand: its first appearance
// in an answer gives it its value, later ones must be equal. A scene "@ raw" holds
// frames that are not well-formed. Bytes that are attached to a frame follow it as
// base64, after " +".
package transcript

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"farhand/wire"
)

// Scene is a socket and what goes over it.
type Scene struct {
	File    string
	Line    int
	Kind    string // control, data, handshake, raw
	Granted wire.Capabilities
	Max     int // max_concurrent; 0: the platform's own
	Frames  []Frame
}

// Frame is one line.
type Frame struct {
	Line    int
	Inbound bool   // from the platform to the device
	Why     string // the comment above
	Text    []byte
}

// Name says where a scene stands.
func (s Scene) Name() string { return fmt.Sprintf("%s:%d", filepath.Base(s.File), s.Line) }

// Read reads the transcripts in a directory.
func Read(dir string) ([]Scene, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.frames"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no transcripts in %s", dir)
	}
	var all []Scene
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		scenes, err := Parse(f, b)
		if err != nil {
			return nil, err
		}
		all = append(all, scenes...)
	}
	return all, nil
}

// Parse reads one transcript.
func Parse(file string, b []byte) ([]Scene, error) {
	var all []Scene
	var why []string
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		mark, rest, _ := strings.Cut(lines.Text(), " ")
		switch mark {
		case "":
			why = nil
		case "#":
			why = append(why, rest)
		case "@":
			s, err := scene(rest)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, n, err)
			}
			s.File, s.Line = file, n
			all = append(all, s)
		case ">", "<":
			if len(all) == 0 {
				return nil, fmt.Errorf("%s:%d: a frame before the first scene", file, n)
			}
			s := &all[len(all)-1]
			text, err := attach(rest)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, n, err)
			}
			s.Frames = append(s.Frames, Frame{n, mark == ">", strings.Join(why, " "), text})
			why = nil
		default:
			return nil, fmt.Errorf("%s:%d: unknown mark %q", file, n, mark)
		}
	}
	return all, lines.Err()
}

// attach reads a frame with bytes attached: JSON, a space, a plus sign and base64.
func attach(line string) ([]byte, error) {
	text, data, ok := strings.Cut(line, "} +")
	if !ok {
		return []byte(line), nil
	}
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, fmt.Errorf("what is attached: %w", err)
	}
	return append([]byte(text+"}\x00"), b...), nil
}

func scene(text string) (Scene, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Scene{}, fmt.Errorf("a scene without a socket")
	}
	s := Scene{Kind: words[0]}
	switch s.Kind {
	case "control", "data", "handshake", "raw":
	default:
		return Scene{}, fmt.Errorf("unknown socket %q", s.Kind)
	}
	for _, w := range words[1:] {
		if n, ok := strings.CutPrefix(w, "max="); ok {
			max, err := strconv.Atoi(n)
			if err != nil {
				return Scene{}, err
			}
			s.Max = max
			continue
		}
		s.Granted = append(s.Granted, wire.Capability(w))
	}
	return s, nil
}

// Payload is a pointer to an empty payload of the Go type that package wire has
// for a message type, or nil where it has none.
func Payload(t wire.Type) any {
	switch t {
	case wire.THello:
		return new(wire.Hello)
	case wire.THelloAck:
		return new(wire.HelloAck)
	case wire.TPing, wire.TPong:
		return new(wire.Empty)
	case wire.TStatus:
		return new(wire.Status)
	case wire.TError:
		return new(wire.Error)
	case wire.TAck:
		return new(wire.Ack)
	case wire.TSessionRevoked:
		return new(wire.SessionRevoked)
	case wire.TDirectoryListRequest:
		return new(wire.DirectoryListRequest)
	case wire.TDirectoryListResponse:
		return new(wire.DirectoryListResponse)
	case wire.TAttachSession:
		return new(wire.AttachSession)
	case wire.TActivateSession:
		return new(wire.ActivateSession)
	case wire.TRestoreSession:
		return new(wire.RestoreSession)
	case wire.TDetachSession:
		return new(wire.DetachSession)
	case wire.TSessionAttached, wire.TSessionActivated, wire.TSessionRestored:
		return new(wire.SessionBinding)
	case wire.TLLMTurn:
		return new(wire.LLMTurn)
	case wire.TLLMTurnChunk:
		return new(wire.LLMTurnChunk)
	case wire.TLLMTurnResponse:
		return new(wire.LLMTurnResponse)
	case wire.TTransferOpen:
		return new(wire.TransferOpen)
	case wire.TTransferOpened:
		return new(wire.TransferOpened)
	case wire.TTransferChunk:
		return new(wire.TransferChunk)
	case wire.TTransferCommit:
		return new(wire.TransferCommit)
	case wire.TTransferCommitted:
		return new(wire.TransferCommitted)
	case wire.TTransferAbort:
		return new(wire.TransferAbort)
	case wire.TTransferRead:
		return new(wire.TransferRead)
	case wire.TTransferData:
		return new(wire.TransferData)
	case wire.TTransferList:
		return new(wire.TransferList)
	case wire.TTransferEntries:
		return new(wire.TransferEntries)
	case wire.TTransferMake:
		return new(wire.TransferMake)
	case wire.TExecuteCommand:
		return new(wire.ExecuteCommand)
	case wire.TCommandResult:
		return new(wire.CommandResult)
	case wire.TFileRead:
		return new(wire.FileRead)
	case wire.TFileContents:
		return new(wire.FileContents)
	case wire.TFileStat:
		return new(wire.FileStat)
	case wire.TFileStatResponse:
		return new(wire.FileStatResponse)
	case wire.TFileList:
		return new(wire.FileList)
	case wire.TFileListResponse:
		return new(wire.FileListResponse)
	case wire.TFileDelete:
		return new(wire.FileDelete)
	case wire.TFileMove:
		return new(wire.FileMove)
	case wire.TLocalLLMCompletion:
		return new(wire.LocalLLMCompletion)
	case wire.TLocalLLMCompletionChunk:
		return new(wire.LocalLLMChunk)
	case wire.TLocalLLMCompletionResponse:
		return new(wire.LocalLLMResponse)
	case wire.THardwareListRequest:
		return new(wire.HardwareListRequest)
	case wire.THardwareListResponse:
		return new(wire.HardwareListResponse)
	case wire.THardwareOp:
		return new(wire.HardwareOp)
	case wire.THardwareResult:
		return new(wire.HardwareResult)
	case wire.TGrantsUpdate:
		return new(wire.GrantsUpdate)
	case wire.TAuditVerifyRequest:
		return new(wire.AuditVerifyRequest)
	case wire.TAuditVerifyResponse:
		return new(wire.AuditVerifyResponse)
	case wire.TMachineListRequest:
		return new(wire.MachineListRequest)
	case wire.TMachineListResponse:
		return new(wire.MachineSnapshot)
	case wire.TSettingsGet:
		return new(wire.SettingsGet)
	case wire.TSettingsSet:
		return new(wire.SettingsSet)
	case wire.TSettings:
		return new(wire.Settings)
	case wire.TSerialOpen:
		return new(wire.SerialOpen)
	case wire.TSerialOpenResponse:
		return new(wire.SerialOpenResponse)
	case wire.TSerialWrite:
		return new(wire.SerialHandleWrite)
	case wire.TSerialRead:
		return new(wire.SerialHandleRead)
	case wire.TSerialReadResponse:
		return new(wire.SerialReadResponse)
	case wire.TUSBOpen:
		return new(wire.USBOpen)
	case wire.TUSBOpenResponse:
		return new(wire.USBOpenResponse)
	case wire.TUSBTransfer:
		return new(wire.USBTransfer)
	case wire.TUSBTransferResponse:
		return new(wire.USBTransferResponse)
	case wire.TGPIOConfigure:
		return new(wire.GPIOHandleConfigure)
	case wire.TGPIOWrite:
		return new(wire.GPIOHandleWrite)
	case wire.TGPIOReadResponse:
		return new(wire.GPIOReadResponse)
	case wire.TSerialClose, wire.TUSBClose, wire.TGPIORead, wire.TGPIOClose:
		return new(wire.Handle)
	case wire.TForwardOpen:
		return new(wire.ForwardOpen)
	case wire.TForwardOpened:
		return new(wire.ForwardOpened)
	case wire.TForwardData:
		return new(wire.ForwardData)
	case wire.TForwardTaken:
		return new(wire.ForwardTaken)
	case wire.TTopRequest:
		return new(wire.TopRequest)
	case wire.TTopResponse:
		return new(wire.TopResponse)
	case wire.TLogsRequest:
		return new(wire.LogsRequest)
	case wire.TLogsResponse:
		return new(wire.LogsResponse)
	case wire.TStreamData:
		return new(wire.StreamData)
	case wire.TStreamCredit:
		return new(wire.StreamCredit)
	case wire.TStreamAttach:
		return new(wire.StreamAttach)
	case wire.TStreamAttached:
		return new(wire.StreamAttached)
	case wire.TStreamClose:
		return new(wire.StreamClose)
	case wire.TLLMStatusRequest, wire.TCancel:
		return new(wire.Empty)
	case wire.TLLMStatusResponse:
		return new(wire.LLMStatus)
	case wire.TLLMEmbed:
		return new(wire.LLMEmbed)
	case wire.TLLMEmbedResponse:
		return new(wire.LLMEmbeddings)
	case wire.TLLMPull:
		return new(wire.LLMPull)
	case wire.TLLMPullResponse:
		return new(wire.LLMPulling)
	case wire.TLLMRemove:
		return new(wire.LLMRemove)
	case wire.TLLMInstall:
		return new(wire.LLMInstall)
	case wire.TLLMUninstall:
		return new(wire.LLMUninstall)
	case wire.TTerminalOpen:
		return new(wire.TerminalOpen)
	case wire.TTerminalAttach:
		return new(wire.TerminalAttach)
	case wire.TTerminalOpened:
		return new(wire.TerminalOpened)
	case wire.TTerminalInput:
		return new(wire.TerminalInput)
	case wire.TTerminalTaken:
		return new(wire.TerminalTaken)
	case wire.TTerminalResize:
		return new(wire.TerminalResize)
	case wire.TTerminalList:
		return new(wire.Empty)
	case wire.TTerminalListResponse:
		return new(wire.TerminalListResponse)
	case wire.TTerminalClose:
		return new(wire.TerminalClose)
	}
	return nil
}
