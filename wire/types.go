package wire

// Type is a message type: the `type` of an envelope.
type Type string

// Handshake, keepalive, status and ownership.
const (
	THello          Type = "HELLO"
	THelloAck       Type = "HELLO_ACK"
	TPing           Type = "PING"
	TPong           Type = "PONG"
	TStatus         Type = "STATUS"
	TError          Type = "ERROR"
	TAck            Type = "ACK"
	TSessionRevoked Type = "SESSION_REVOKED"
)

// Machine control: on the control socket alone.
const (
	TDirectoryListRequest  Type = "DIRECTORY_LIST_REQUEST"
	TDirectoryListResponse Type = "DIRECTORY_LIST_RESPONSE"
	TAttachSession         Type = "ATTACH_SESSION"
	TSessionAttached       Type = "SESSION_ATTACHED"
	TActivateSession       Type = "ACTIVATE_SESSION"
	TSessionActivated      Type = "SESSION_ACTIVATED"
	TRestoreSession        Type = "RESTORE_SESSION"
	TSessionRestored       Type = "SESSION_RESTORED"
	TDetachSession         Type = "DETACH_SESSION"
)

// Shell, files and the local model: on data sockets alone.
const (
	TExecuteCommand   Type = "EXECUTE_COMMAND"
	TCommandResult    Type = "COMMAND_RESULT"
	TFileRead         Type = "FILE_READ"
	TFileContents     Type = "FILE_CONTENTS"
	TFileWrite        Type = "FILE_WRITE"
	TFileStat         Type = "FILE_STAT"
	TFileStatResponse Type = "FILE_STAT_RESPONSE"
	TFileList         Type = "FILE_LIST"
	TFileListResponse Type = "FILE_LIST_RESPONSE"
	TFileDelete       Type = "FILE_DELETE"
	TFileMove         Type = "FILE_MOVE"

	TLocalLLMCompletion         Type = "LOCAL_LLM_COMPLETION"
	TLocalLLMCompletionChunk    Type = "LOCAL_LLM_COMPLETION_CHUNK"
	TLocalLLMCompletionResponse Type = "LOCAL_LLM_COMPLETION_RESPONSE"
)

// Computer use: known so that it can be refused with the right code.
const (
	TScreenshotRequest        Type = "SCREENSHOT_REQUEST"
	TInputAction              Type = "INPUT_ACTION"
	TCursorPositionRequest    Type = "CURSOR_POSITION_REQUEST"
	TDisplayInfoRequest       Type = "DISPLAY_INFO_REQUEST"
	TWindowListRequest        Type = "WINDOW_LIST_REQUEST"
	TWindowFocus              Type = "WINDOW_FOCUS"
	TAppListRequest           Type = "APP_LIST_REQUEST"
	TAppLaunch                Type = "APP_LAUNCH"
	TClipboardRead            Type = "CLIPBOARD_READ"
	TClipboardWrite           Type = "CLIPBOARD_WRITE"
	TPermissionsCheckRequest  Type = "PERMISSIONS_CHECK_REQUEST"
	TScreenshotResponse       Type = "SCREENSHOT_RESPONSE"
	TCursorPositionResponse   Type = "CURSOR_POSITION_RESPONSE"
	TDisplayInfoResponse      Type = "DISPLAY_INFO_RESPONSE"
	TWindowListResponse       Type = "WINDOW_LIST_RESPONSE"
	TAppListResponse          Type = "APP_LIST_RESPONSE"
	TClipboardReadResponse    Type = "CLIPBOARD_READ_RESPONSE"
	TPermissionsCheckResponse Type = "PERMISSIONS_CHECK_RESPONSE"
)

// Recording: reserved by the protocol, known so that it can be refused.
const (
	TRequestRecordingConsent Type = "REQUEST_RECORDING_CONSENT"
	TStartRecording          Type = "START_RECORDING"
	TStopRecording           Type = "STOP_RECORDING"
	TRecordingFetch          Type = "RECORDING_FETCH"
	TApplyRecordingReview    Type = "APPLY_RECORDING_REVIEW"
	TRecordingConsentResult  Type = "RECORDING_CONSENT_RESULT"
	TRecordingStarted        Type = "RECORDING_STARTED"
	TRecordingSummary        Type = "RECORDING_SUMMARY"
	TRecordingData           Type = "RECORDING_DATA"
	TRecordingReviewApplied  Type = "RECORDING_REVIEW_APPLIED"
	TRecordingStep           Type = "RECORDING_STEP"
)

// Extensions, each used only after its capability was granted.
const (
	THardwareListRequest  Type = "HARDWARE_LIST_REQUEST"
	THardwareListResponse Type = "HARDWARE_LIST_RESPONSE"
	THardwareOp           Type = "HARDWARE_OP"
	THardwareResult       Type = "HARDWARE_RESULT"
	TGrantsUpdate         Type = "GRANTS_UPDATE"
	TAuditVerifyRequest   Type = "AUDIT_VERIFY_REQUEST"
	TAuditVerifyResponse  Type = "AUDIT_VERIFY_RESPONSE"
	TMachineListRequest   Type = "MACHINE_LIST_REQUEST"
	TMachineListResponse  Type = "MACHINE_LIST_RESPONSE"
	TSettingsGet          Type = "SETTINGS_GET"
	TSettingsSet          Type = "SETTINGS_SET"
	TSettings             Type = "SETTINGS"

	TForwardOpen   Type = "FORWARD_OPEN"
	TForwardOpened Type = "FORWARD_OPENED"
	TForwardData   Type = "FORWARD_DATA"
	TForwardTaken  Type = "FORWARD_TAKEN"

	TTopRequest   Type = "TOP_REQUEST"
	TTopResponse  Type = "TOP_RESPONSE"
	TLogsRequest  Type = "LOGS_REQUEST"
	TLogsResponse Type = "LOGS_RESPONSE"
	// TCancel has the id of the request that it ends.
	TCancel Type = "CANCEL"

	TStreamData     Type = "STREAM_DATA"
	TStreamCredit   Type = "STREAM_CREDIT"
	TStreamAttach   Type = "STREAM_ATTACH"
	TStreamAttached Type = "STREAM_ATTACHED"
	TStreamClose    Type = "STREAM_CLOSE"

	TTerminalOpen         Type = "TERMINAL_OPEN"
	TTerminalAttach       Type = "TERMINAL_ATTACH"
	TTerminalOpened       Type = "TERMINAL_OPENED"
	TTerminalInput        Type = "TERMINAL_INPUT"
	TTerminalTaken        Type = "TERMINAL_INPUT_RESPONSE"
	TTerminalResize       Type = "TERMINAL_RESIZE"
	TTerminalList         Type = "TERMINAL_LIST"
	TTerminalListResponse Type = "TERMINAL_LIST_RESPONSE"
	TTerminalClose        Type = "TERMINAL_CLOSE"

	TLLMStatusRequest  Type = "LLM_STATUS_REQUEST"
	TLLMStatusResponse Type = "LLM_STATUS_RESPONSE"
	TLLMEmbed          Type = "LLM_EMBED"
	TLLMEmbedResponse  Type = "LLM_EMBED_RESPONSE"
	TLLMPull           Type = "LLM_PULL"
	TLLMPullResponse   Type = "LLM_PULL_RESPONSE"
	TLLMRemove         Type = "LLM_REMOVE"
	TLLMInstall        Type = "LLM_INSTALL"
	TLLMUninstall      Type = "LLM_UNINSTALL"

	TLLMTurn         Type = "LOCAL_LLM_TURN"
	TLLMTurnChunk    Type = "LOCAL_LLM_TURN_CHUNK"
	TLLMTurnResponse Type = "LOCAL_LLM_TURN_RESPONSE"

	TTransferOpen      Type = "TRANSFER_OPEN"
	TTransferOpened    Type = "TRANSFER_OPENED"
	TTransferChunk     Type = "TRANSFER_CHUNK"
	TTransferCommit    Type = "TRANSFER_COMMIT"
	TTransferCommitted Type = "TRANSFER_COMMITTED"
	TTransferAbort     Type = "TRANSFER_ABORT"
	TTransferRead      Type = "TRANSFER_READ"
	TTransferData      Type = "TRANSFER_DATA"
	TTransferList      Type = "TRANSFER_LIST"
	TTransferEntries   Type = "TRANSFER_ENTRIES"
	TTransferMake      Type = "TRANSFER_MAKE"
)

// carriesData says whether bytes may be attached to messages of this type.
func (t Type) carriesData() bool {
	return t == TTransferOpen || t == TTransferChunk || t == TTransferData
}

// IsChunk says whether a message is a piece of an answer, sent between the request
// and its answer.
func (t Type) IsChunk() bool { return t == TLocalLLMCompletionChunk || t == TLLMTurnChunk }

// Channel says on which socket of a machine a request may arrive.
type Channel uint8

const (
	Control Channel = 1 << iota // the machine's own socket
	Data                        // a session's socket
)

// Method is one request the platform may send to a device and what answers it.
type Method struct {
	Request  Type
	Response Type // the terminal answer; ERROR is always possible. Empty: it is never answered
	Channel  Channel
	// Capability is what the socket's grant must hold. HardwareFamily stands
	// for "any of the hardware_* capabilities"; the device then asks for the
	// one of the device's own family.
	Capability Capability
	// Repeatable says that sending the request twice does no harm, so that the
	// platform side may retry it once after a timeout or a lost link.
	Repeatable bool
	// Extension marks what protocol 1.1 itself doesn't know.
	Extension bool
	// Refused marks what a headless device never serves.
	Refused bool
}

// OneWay says that the message is never answered, and so never outstanding.
func (m Method) OneWay() bool { return m.Response == "" }

// Chunks is the type of the pieces that may come before this method's answer;
// empty if there are none.
func (m Method) Chunks() Type {
	switch m.Request {
	case TLocalLLMCompletion:
		return TLocalLLMCompletionChunk
	case TLLMTurn:
		return TLLMTurnChunk
	}
	return ""
}

// HardwareFamily in Method.Capability means any hardware_* capability.
const HardwareFamily Capability = "hardware_*"

// methods is the one table of requests. It is read-only after initialisation.
var methods = map[Type]Method{
	TPing: {Request: TPing, Response: TPong, Channel: Control | Data, Repeatable: true},

	TDirectoryListRequest: {Request: TDirectoryListRequest, Response: TDirectoryListResponse, Channel: Control, Capability: DirectoryBrowse, Repeatable: true},
	TAttachSession:        {Request: TAttachSession, Response: TSessionAttached, Channel: Control, Capability: DirectoryBrowse},
	TActivateSession:      {Request: TActivateSession, Response: TSessionActivated, Channel: Control, Capability: DirectoryBrowse, Repeatable: true},
	TRestoreSession:       {Request: TRestoreSession, Response: TSessionRestored, Channel: Control, Capability: DirectoryBrowse, Repeatable: true},
	TDetachSession:        {Request: TDetachSession, Response: TAck, Channel: Control, Capability: DirectoryBrowse, Repeatable: true},

	TExecuteCommand: {Request: TExecuteCommand, Response: TCommandResult, Channel: Data, Capability: Shell},

	TFileRead:   {Request: TFileRead, Response: TFileContents, Channel: Data, Capability: Files, Repeatable: true},
	TFileWrite:  {Request: TFileWrite, Response: TAck, Channel: Data, Capability: Files},
	TFileStat:   {Request: TFileStat, Response: TFileStatResponse, Channel: Data, Capability: Files, Repeatable: true},
	TFileList:   {Request: TFileList, Response: TFileListResponse, Channel: Data, Capability: Files, Repeatable: true},
	TFileDelete: {Request: TFileDelete, Response: TAck, Channel: Data, Capability: Files},
	TFileMove:   {Request: TFileMove, Response: TAck, Channel: Data, Capability: Files},

	TLocalLLMCompletion: {Request: TLocalLLMCompletion, Response: TLocalLLMCompletionResponse, Channel: Data, Capability: LocalLLM},

	TScreenshotRequest:       {Request: TScreenshotRequest, Response: TScreenshotResponse, Channel: Data, Capability: ComputerUse, Repeatable: true, Refused: true},
	TInputAction:             {Request: TInputAction, Response: TAck, Channel: Data, Capability: ComputerUse, Refused: true},
	TCursorPositionRequest:   {Request: TCursorPositionRequest, Response: TCursorPositionResponse, Channel: Data, Capability: ComputerUse, Repeatable: true, Refused: true},
	TDisplayInfoRequest:      {Request: TDisplayInfoRequest, Response: TDisplayInfoResponse, Channel: Data, Capability: ComputerUse, Repeatable: true, Refused: true},
	TWindowListRequest:       {Request: TWindowListRequest, Response: TWindowListResponse, Channel: Data, Capability: ComputerUse, Repeatable: true, Refused: true},
	TWindowFocus:             {Request: TWindowFocus, Response: TAck, Channel: Data, Capability: ComputerUse, Refused: true},
	TAppListRequest:          {Request: TAppListRequest, Response: TAppListResponse, Channel: Data, Capability: ComputerUse, Repeatable: true, Refused: true},
	TAppLaunch:               {Request: TAppLaunch, Response: TAck, Channel: Data, Capability: ComputerUse, Refused: true},
	TClipboardRead:           {Request: TClipboardRead, Response: TClipboardReadResponse, Channel: Data, Capability: ComputerUse, Repeatable: true, Refused: true},
	TClipboardWrite:          {Request: TClipboardWrite, Response: TAck, Channel: Data, Capability: ComputerUse, Refused: true},
	TPermissionsCheckRequest: {Request: TPermissionsCheckRequest, Response: TPermissionsCheckResponse, Channel: Data, Capability: ComputerUse, Repeatable: true, Refused: true},

	TRequestRecordingConsent: {Request: TRequestRecordingConsent, Response: TRecordingConsentResult, Channel: Data, Capability: Recording, Refused: true},
	TStartRecording:          {Request: TStartRecording, Response: TRecordingStarted, Channel: Data, Capability: Recording, Refused: true},
	TStopRecording:           {Request: TStopRecording, Response: TRecordingSummary, Channel: Data, Capability: Recording, Refused: true},
	TRecordingFetch:          {Request: TRecordingFetch, Response: TRecordingData, Channel: Data, Capability: Recording, Repeatable: true, Refused: true},
	TApplyRecordingReview:    {Request: TApplyRecordingReview, Response: TRecordingReviewApplied, Channel: Data, Capability: Recording, Refused: true},

	THardwareListRequest: {Request: THardwareListRequest, Response: THardwareListResponse, Channel: Control | Data, Capability: HardwareFamily, Repeatable: true, Extension: true},
	THardwareOp:          {Request: THardwareOp, Response: THardwareResult, Channel: Data, Capability: HardwareFamily, Extension: true},
	TGrantsUpdate:        {Request: TGrantsUpdate, Response: TAck, Channel: Control | Data, Capability: Grants, Repeatable: true, Extension: true},
	TAuditVerifyRequest:  {Request: TAuditVerifyRequest, Response: TAuditVerifyResponse, Channel: Control, Capability: AuditAnchor, Repeatable: true, Extension: true},
	TMachineListRequest:  {Request: TMachineListRequest, Response: TMachineListResponse, Channel: Control, Capability: Machines, Repeatable: true, Extension: true},
	TSettingsGet:         {Request: TSettingsGet, Response: TSettings, Channel: Control, Capability: SettingsCapability, Repeatable: true, Extension: true},
	TSettingsSet:         {Request: TSettingsSet, Response: TSettings, Channel: Control, Capability: SettingsCapability, Extension: true},

	TSerialOpen:  {Request: TSerialOpen, Response: TSerialOpenResponse, Channel: Data, Capability: HardwareSerial, Extension: true},
	TSerialWrite: {Request: TSerialWrite, Response: TAck, Channel: Data, Capability: HardwareSerial, Extension: true},
	TSerialRead:  {Request: TSerialRead, Response: TSerialReadResponse, Channel: Data, Capability: HardwareSerial, Extension: true},
	TSerialClose: {Request: TSerialClose, Response: TAck, Channel: Data, Capability: HardwareSerial, Extension: true},

	TUSBOpen:     {Request: TUSBOpen, Response: TUSBOpenResponse, Channel: Data, Capability: HardwareUSB, Extension: true},
	TUSBTransfer: {Request: TUSBTransfer, Response: TUSBTransferResponse, Channel: Data, Capability: HardwareUSB, Extension: true},
	TUSBClose:    {Request: TUSBClose, Response: TAck, Channel: Data, Capability: HardwareUSB, Extension: true},

	TGPIOConfigure: {Request: TGPIOConfigure, Response: TAck, Channel: Data, Capability: HardwareGPIO, Extension: true},
	TGPIOWrite:     {Request: TGPIOWrite, Response: TAck, Channel: Data, Capability: HardwareGPIO, Extension: true},
	TGPIORead:      {Request: TGPIORead, Response: TGPIOReadResponse, Channel: Data, Capability: HardwareGPIO, Repeatable: true, Extension: true},
	TGPIOClose:     {Request: TGPIOClose, Response: TAck, Channel: Data, Capability: HardwareGPIO, Extension: true},

	TCancel: {Request: TCancel, Channel: Data, Capability: Cancel, Extension: true},

	TStreamCredit: {Request: TStreamCredit, Channel: Control | Data, Capability: Streams, Extension: true},
	TForwardOpen:  {Request: TForwardOpen, Response: TForwardOpened, Channel: Data, Capability: Forward, Extension: true},
	TForwardData:  {Request: TForwardData, Response: TForwardTaken, Channel: Data, Capability: Forward, Repeatable: true, Extension: true},

	TTopRequest:  {Request: TTopRequest, Response: TTopResponse, Channel: Data, Capability: Observe, Repeatable: true, Extension: true},
	TLogsRequest: {Request: TLogsRequest, Response: TLogsResponse, Channel: Data, Capability: Observe, Repeatable: true, Extension: true},

	TStreamAttach: {Request: TStreamAttach, Response: TStreamAttached, Channel: Control | Data, Capability: Streams, Repeatable: true, Extension: true},
	TStreamClose:  {Request: TStreamClose, Response: TAck, Channel: Control | Data, Capability: Streams, Repeatable: true, Extension: true},

	TTerminalOpen:   {Request: TTerminalOpen, Response: TTerminalOpened, Channel: Data, Capability: Terminal, Extension: true},
	TTerminalAttach: {Request: TTerminalAttach, Response: TTerminalOpened, Channel: Data, Capability: Terminal, Repeatable: true, Extension: true},
	TTerminalInput:  {Request: TTerminalInput, Response: TTerminalTaken, Channel: Data, Capability: Terminal, Repeatable: true, Extension: true},
	TTerminalResize: {Request: TTerminalResize, Response: TAck, Channel: Data, Capability: Terminal, Repeatable: true, Extension: true},
	TTerminalList:   {Request: TTerminalList, Response: TTerminalListResponse, Channel: Data, Capability: Terminal, Repeatable: true, Extension: true},
	TTerminalClose:  {Request: TTerminalClose, Response: TAck, Channel: Data, Capability: Terminal, Repeatable: true, Extension: true},

	TLLMStatusRequest: {Request: TLLMStatusRequest, Response: TLLMStatusResponse, Channel: Data, Capability: LocalLLMExtended, Repeatable: true, Extension: true},
	TLLMEmbed:         {Request: TLLMEmbed, Response: TLLMEmbedResponse, Channel: Data, Capability: LocalLLMExtended, Repeatable: true, Extension: true},
	TLLMPull:          {Request: TLLMPull, Response: TLLMPullResponse, Channel: Data, Capability: LLMManage, Extension: true},
	TLLMRemove:        {Request: TLLMRemove, Response: TAck, Channel: Data, Capability: LLMManage, Extension: true},
	TLLMInstall:       {Request: TLLMInstall, Response: TLLMPullResponse, Channel: Data, Capability: LLMManage, Extension: true},
	TLLMUninstall:     {Request: TLLMUninstall, Response: TAck, Channel: Data, Capability: LLMManage, Extension: true},

	TLLMTurn: {Request: TLLMTurn, Response: TLLMTurnResponse, Channel: Data, Capability: Privacy, Extension: true},

	TTransferOpen:   {Request: TTransferOpen, Response: TTransferOpened, Channel: Data, Capability: Transfer, Repeatable: true, Extension: true},
	TTransferChunk:  {Request: TTransferChunk, Response: TAck, Channel: Data, Capability: Transfer, Repeatable: true, Extension: true},
	TTransferCommit: {Request: TTransferCommit, Response: TTransferCommitted, Channel: Data, Capability: Transfer, Extension: true},
	TTransferAbort:  {Request: TTransferAbort, Response: TAck, Channel: Data, Capability: Transfer, Repeatable: true, Extension: true},
	TTransferRead:   {Request: TTransferRead, Response: TTransferData, Channel: Data, Capability: Transfer, Repeatable: true, Extension: true},
	TTransferList:   {Request: TTransferList, Response: TTransferEntries, Channel: Data, Capability: Transfer, Repeatable: true, Extension: true},
	TTransferMake:   {Request: TTransferMake, Response: TAck, Channel: Data, Capability: Transfer, Repeatable: true, Extension: true},
}

// MethodOf is the method that a request of this type asks for.
func MethodOf(t Type) (Method, bool) {
	m, ok := methods[t]
	return m, ok
}

// Methods lists every method in no particular order.
func Methods() []Method {
	all := make([]Method, 0, len(methods))
	for _, m := range methods {
		all = append(all, m)
	}
	return all
}

// deviceFrames are the frames a device may send, with the capability without
// which it may not: the answers of the table, and what is sent unasked or
// between request and answer.
var deviceFrames = func() map[Type]Capability {
	frames := map[Type]Capability{
		THello: "", TStatus: "", TError: "", TAck: "", TPong: "",
		TLocalLLMCompletionChunk: LocalLLM, TLLMTurnChunk: Privacy, TStreamData: Streams,
	}
	for _, m := range methods {
		if m.Refused || m.Response == TAck || m.OneWay() {
			continue
		}
		frames[m.Response] = m.Capability
	}
	return frames
}()

// MayDeviceSend says whether a device may send a frame of this type on a socket
// with this grant. The AutoGPT platform drops a socket at the first frame that
// it does not expect, so the writer asks this for every frame.
func MayDeviceSend(t Type, granted Capabilities) bool {
	need, known := deviceFrames[t]
	switch {
	case !known:
		return false
	case need == "":
		return true
	case need == HardwareFamily:
		return granted.AnyHardware()
	default:
		return granted.Has(need)
	}
}

// IsAnswer says whether t is a type that only ever comes from a device (an
// answer or an unsolicited report), so that a device which receives it drops it
// and answers nothing.
func IsAnswer(t Type) bool {
	if _, request := methods[t]; request {
		return false
	}
	switch t {
	case THello, THelloAck, TRecordingStep:
		return true
	}
	if _, ok := deviceFrames[t]; ok {
		return true
	}
	for _, m := range methods {
		if m.Response == t {
			return true
		}
	}
	return false
}
