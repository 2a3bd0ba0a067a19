package wire

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// payloads are what each operation takes, answers and brings in its stream.
// PRINTER_STATUS and RELEASE take what the document alone says.
var payloads = map[string][]any{
	OpRelease: {Released{}},

	OpGPIOGet:       {GPIOGet{}, GPIOValues{}},
	OpGPIOSet:       {GPIOSet{}, GPIOValues{}},
	OpGPIOConfigure: {GPIOConfigure{}, GPIOConfigured{}},
	OpGPIOWatch:     {GPIOWatch{}, GPIOWatching{}, GPIORecord{}},
	OpGPIOPWM:       {GPIOPWM{}, GPIOPWMState{}},
	OpGPIOInfo:      {GPIOInfo{}, GPIOChip{}},

	OpSerialWrite:    {SerialWrite{}, SerialWritten{}},
	OpSerialRead:     {SerialRead{}, SerialData{}},
	OpSerialTransact: {SerialTransact{}, SerialData{}},
	OpSerialExpect:   {SerialExpect{}, SerialExpected{}},
	OpSerialControl:  {SerialControl{}, SerialLines{}},
	OpSerialWatch:    {SerialWatch{}, SerialWatching{}},

	OpI2CTransfer: {I2CTransfer{}, I2CTransferred{}},
	OpI2CSMBus:    {I2CSMBus{}, I2CSMBusResult{}},
	OpI2CScan:     {I2CScan{}, I2CScanned{}},
	OpSPITransfer: {SPITransfer{}, SPITransferred{}},

	OpUSBDescribe:  {USBDescribe{}, USBDescription{}},
	OpUSBControl:   {USBControl{}, USBTransferred{}},
	OpUSBSend:      {USBSend{}, USBTransferred{}},
	OpUSBReceive:   {USBReceive{}, USBTransferred{}},
	OpUSBWatch:     {USBWatch{}, USBWatching{}, USBPacket{}},
	OpUSBHID:       {USBHID{}, USBTransferred{}},
	OpUSBReset:     {USBReset{}, USBResetDone{}},
	OpUSBConfigure: {USBConfigure{}, USBConfigured{}},

	OpPrinterStatus:      {PrinterStatus{}},
	OpPrinterFiles:       {PrinterFiles{}, PrinterFileList{}, PrinterFileDone{}},
	OpPrinterUpload:      {PrinterUpload{}, PrinterUploading{}, PrinterProgress{}},
	OpPrinterJob:         {PrinterJob{}, PrinterJobDone{}},
	OpPrinterTemperature: {PrinterTemperature{}, PrinterTargets{}},
	OpPrinterCommand:     {PrinterCommand{}, PrinterCommanded{}},
	OpPrinterMove:        {PrinterMove{}, PrinterMoved{}},
	OpPrinterWatch:       {PrinterWatch{}, PrinterWatching{}, PrinterEvent{}},
	OpPrinterJoin:        {PrinterJoin{}, PrinterJoining{}, PrinterJoinEvent{}},
}

// elsewhere are payloads by the heading that they stand below.
var elsewhere = map[string][]any{
	"Devices":             {HardwareDevice{}, HardwareListRequest{}, HardwareListResponse{}, HardwareEvent{}, MachineSnapshot{}},
	"Operations":          {HardwareOp{}, HardwareResult{}},
	"Streams":             {StreamData{}, StreamCredit{}, StreamAttach{}, StreamAttached{}, StreamClose{}},
	"Terminals":           {TerminalOpen{}, TerminalAttach{}, TerminalOpened{}, TerminalInput{}, TerminalTaken{}, TerminalResize{}, TerminalClose{}, TerminalListResponse{}},
	"Forwarding":          {ForwardOpen{}, ForwardOpened{}, ForwardRecord{}, ForwardData{}, ForwardTaken{}},
	"The machine itself":  {TopRequest{}, TopResponse{}, LogsRequest{}, LogsResponse{}, LogRecord{}},
	"Hardware as handles": {SerialOpen{}, SerialHandleWrite{}, SerialHandleRead{}, SerialReadResponse{}, USBOpen{}, USBTransfer{}, USBTransferResponse{}, GPIOHandleConfigure{}, GPIOHandleWrite{}, GPIOReadResponse{}},
	"Files in pieces":     {TransferOpen{}, TransferOpened{}, TransferChunk{}, TransferCommit{}, TransferCommitted{}, TransferAbort{}, TransferRead{}, TransferData{}, TransferList{}, TransferEntries{}, TransferMake{}},
	"Private files":       {FileStub{}, LLMTurn{}, LLMTurnChunk{}, LLMTurnResponse{}},
	"Ceilings":            {GrantSet{}},
	"Settings":            {SettingsGet{}, SettingsSet{}, Settings{}},
}

// TestExtensionsAreDocumented: docs/extensions.md names every operation with
// each of its fields, every message and every code, and nothing that there isn't.
func TestExtensionsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/extensions.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	ops, codes := constants(t)
	for _, code := range codes {
		protocols := regexp.MustCompile(`^(PATH_|COMMAND_|SHELL_|UNSUPPORTED_|AUTH_|INTERNAL_|FILE_|DEPENDENCY_|DIRECTORY_|ROOT_|SESSION_[^N]|SESSION_NOT_ATTACHED|WINDOW_|PERMISSION_PENDING|CLIPBOARD_|INPUT_|MODEL_|LOCAL_)`)
		if !protocols.MatchString(code) && !strings.Contains(doc, "`"+code+"`") {
			t.Errorf("the code %s isn't there", code)
		}
	}
	known := append(slices.Clone(codes), ops...)
	for _, m := range Methods() {
		known = append(known, string(m.Request), string(m.Response))
		for _, typ := range []Type{m.Request, m.Response} {
			if m.Extension && typ != "" && !regexp.MustCompile("`"+string(typ)+"[` ]").MatchString(doc) {
				t.Errorf("the message %s isn't there", typ)
			}
		}
	}
	known = append(known, string(TStreamData), string(TLLMTurnChunk))
	for _, m := range regexp.MustCompile("`([A-Z0-9]+(?:_[A-Z0-9]+)+)[` ]").FindAllStringSubmatch(doc, -1) {
		if !slices.Contains(known, m[1]) && m[1] != "HELLO_ACK" {
			t.Errorf("there is no %s", m[1])
		}
	}
	for _, op := range ops {
		if op == OpUSBDetach { // can't be sent
			continue
		}
		if payloads[op] == nil {
			t.Errorf("of %s nothing is known here", op)
		}
		section := sectionOf(doc, "### `"+op+"`")
		if section == "" {
			t.Errorf("%s has no section", op)
			continue
		}
		for _, m := range regexp.MustCompile(`as ([A-Z0-9_]+)`).FindAllStringSubmatch(section, -1) {
			section += sectionOf(doc, "### `"+m[1]+"`")
		}
		checkFields(t, op, section+introduction(doc, op), payloads[op])
	}
	for heading, all := range elsewhere {
		checkFields(t, heading, sectionOf(doc, "## "+heading), all)
	}
}

// constants are the operations and the codes in the source.
func constants(t *testing.T) (ops, codes []string) {
	t.Helper()
	files, _ := filepath.Glob("*.go") // the pattern is well-formed
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.ValueSpec)
			if !ok || len(s.Names) != 1 || len(s.Values) != 1 {
				return true
			}
			lit, ok := s.Values[0].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			value, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			typ, _ := s.Type.(*ast.Ident)
			switch {
			case typ == nil && regexp.MustCompile(`^Op[A-Z]`).MatchString(s.Names[0].Name):
				ops = append(ops, value)
			case typ != nil && typ.Name == "Code":
				codes = append(codes, value)
			}
			return true
		})
	}
	if len(ops) < 30 || len(codes) < 40 {
		t.Fatalf("only %d operations and %d codes found in the source", len(ops), len(codes))
	}
	return ops, codes
}

// sectionOf is what stands below a heading, up to the next of its rank or above.
func sectionOf(doc, heading string) string {
	rank, _, _ := strings.Cut(heading, " ")
	_, rest, ok := strings.Cut(doc, "\n"+heading+"\n")
	if !ok {
		return ""
	}
	end := regexp.MustCompile(`(?m)^#{1,` + strconv.Itoa(len(rank)) + `} `).FindStringIndex(rest)
	if end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// introduction is what a family says before its first operation.
func introduction(doc, op string) string {
	before, _, _ := strings.Cut(doc, "\n### `"+op+"`\n")
	family := before[strings.LastIndex(before, "\n## "):]
	intro, _, _ := strings.Cut(family, "\n### ")
	return intro
}

func checkFields(t *testing.T, what, text string, all []any) {
	t.Helper()
	names, seen := make(map[string]bool), make(map[reflect.Type]bool)
	for _, v := range all {
		fieldsOf(reflect.TypeOf(v), names, seen)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
			t.Errorf("%s says nothing about %s", what, name)
		}
	}
}

// fieldsOf adds the names that a type has as JSON. Of a device and of an error
// it takes none: they are described once.
func fieldsOf(typ reflect.Type, names map[string]bool, seen map[reflect.Type]bool) {
	if seen[typ] {
		return // it has itself inside
	}
	seen[typ] = true
	switch typ {
	case reflect.TypeFor[Error](), reflect.TypeFor[time.Time](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[GPIOLines]():
		return
	}
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		fieldsOf(typ.Elem(), names, seen)
	case reflect.Struct:
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && name != "-" {
				names[name] = true
			}
			if f.Type != reflect.TypeFor[PrinterStatus]() && f.Type != reflect.TypeFor[*PrinterStatus]() {
				fieldsOf(f.Type, names, seen)
			}
		}
	}
}
