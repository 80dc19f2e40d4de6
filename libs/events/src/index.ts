/** One PDU: canonical JSON, format, hashes, redaction, signing. */
export {};
