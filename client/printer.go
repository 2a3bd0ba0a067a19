package client

import (
	"context"

	"farhand/wire"
)

// PrinterStatus says how a printer is.
func (s *Session) PrinterStatus(ctx context.Context, device string, hold Hold) (wire.PrinterStatus, error) {
	return operate[wire.PrinterStatus](ctx, s, device, wire.OpPrinterStatus, wire.Empty{}, hold)
}

// PrinterFiles lists a printer's files; the action is list or empty.
func (s *Session) PrinterFiles(ctx context.Context, device string, args wire.PrinterFiles, hold Hold) (wire.PrinterFileList, error) {
	return operate[wire.PrinterFileList](ctx, s, device, wire.OpPrinterFiles, args, hold)
}

// PrinterFile selects or deletes a printer's file, as the action says.
func (s *Session) PrinterFile(ctx context.Context, device string, args wire.PrinterFiles, hold Hold) (wire.PrinterFileDone, error) {
	return operate[wire.PrinterFileDone](ctx, s, device, wire.OpPrinterFiles, args, hold)
}

// PrinterJob starts, pauses, resumes or cancels a printer's job.
func (s *Session) PrinterJob(ctx context.Context, device string, args wire.PrinterJob, hold Hold) (wire.PrinterJobDone, error) {
	return operate[wire.PrinterJobDone](ctx, s, device, wire.OpPrinterJob, args, hold)
}

// PrinterTemperature sets the targets of a printer's heaters.
func (s *Session) PrinterTemperature(ctx context.Context, device string, args wire.PrinterTemperature, hold Hold) (wire.PrinterTargets, error) {
	return operate[wire.PrinterTargets](ctx, s, device, wire.OpPrinterTemperature, args, hold)
}

// PrinterCommand sends G-code to a printer, or bytes to its USB port.
func (s *Session) PrinterCommand(ctx context.Context, device string, args wire.PrinterCommand, hold Hold) (wire.PrinterCommanded, error) {
	return operate[wire.PrinterCommanded](ctx, s, device, wire.OpPrinterCommand, args, hold)
}

// PrinterMove homes or jogs a printer's head.
func (s *Session) PrinterMove(ctx context.Context, device string, args wire.PrinterMove, hold Hold) (wire.PrinterMoved, error) {
	return operate[wire.PrinterMoved](ctx, s, device, wire.OpPrinterMove, args, hold)
}

// PrinterUpload sends a file of the machine to a printer: records of wire.PrinterProgress.
func (s *Session) PrinterUpload(ctx context.Context, device string, args wire.PrinterUpload) (*Stream, wire.PrinterUploading, error) {
	return look[wire.PrinterUploading](ctx, s, device, wire.OpPrinterUpload, args)
}

// PrinterWatch receives what happens at a printer: records of wire.PrinterEvent.
func (s *Session) PrinterWatch(ctx context.Context, device string, args wire.PrinterWatch) (*Stream, wire.PrinterWatching, error) {
	return look[wire.PrinterWatching](ctx, s, device, wire.OpPrinterWatch, args)
}

// PrinterJoin asks the printer server's owner for an API key: records of wire.PrinterJoinEvent.
func (s *Session) PrinterJoin(ctx context.Context, device string, args wire.PrinterJoin) (*Stream, wire.PrinterJoining, error) {
	return look[wire.PrinterJoining](ctx, s, device, wire.OpPrinterJoin, args)
}
