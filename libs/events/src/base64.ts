/** Encodes bytes as base64 without padding. @spec appendices#unpadded-base64 */
export function encodeBase64(bytes: Uint8Array): string {
  const text = asBuffer(bytes).toString('base64');
  const padding = text.indexOf('=');
  return padding < 0 ? text : text.slice(0, padding);
}

/** Encodes bytes as URL-safe base64 without padding. @spec appendices#unpadded-base64 */
export function encodeBase64Url(bytes: Uint8Array): string {
  return asBuffer(bytes).toString('base64url');
}

/**
 * Decodes what this server itself would have written: standard alphabet, no padding, spare bits zero.
 * @returns `undefined` for anything else
 */
export function decodeBase64Strict(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  return encodeBase64(bytes) === text ? bytes : undefined;
}

/**
 * Decodes base64 as other servers write it: either alphabet, padded or not, any spare bits.
 * @returns `undefined` when the text holds other characters or has an impossible length
 * @spec appendices#unpadded-base64
 */
export function decodeBase64(text: string): Buffer | undefined {
  const padding = text.indexOf('=');
  const digits = padding < 0 ? text : text.slice(0, padding);
  if (digits.length % 4 === 1 || !base64Text.test(text)) return undefined;
  return Buffer.from(digits, 'base64');
}

const base64Text = /^[A-Za-z0-9+/_-]*={0,2}$/;

const asBuffer = (bytes: Uint8Array): Buffer =>
  Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
