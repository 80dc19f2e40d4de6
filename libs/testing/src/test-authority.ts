import { generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';
import { isIP } from 'node:net';

/** A certificate with its key, PEM. */
export interface TestCertificate {
  readonly cert: string;
  readonly key: string;
}

/** A certificate authority that nobody else trusts. */
export interface TestAuthority {
  /** Its own certificate, PEM: for those who shall trust it. */
  readonly cert: string;
  /** A certificate for DNS names and IP addresses. @param validForMs negative for one that has expired */
  issue(names: readonly string[], validForMs?: number): TestCertificate;
}

const dayMs = 86_400_000;

/** Makes an authority: real certificates (ECDSA, P-256) for TLS servers in tests. */
export function makeTestAuthority(name = 'Authority of tests'): TestAuthority {
  const authority = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const issuer = distinguishedName(name);
  const certificate = (subject: Buffer, key: KeyObject, extensions: readonly Buffer[], validForMs: number): string => {
    const nowMs = Date.now();
    const [from, until] =
      validForMs < 0 ? [nowMs + 2 * validForMs, nowMs + validForMs] : [nowMs - dayMs, nowMs + validForMs];
    const toBeSigned = sequence(
      tagged(0xa0, integer(Buffer.from([2]))),
      integer(Buffer.concat([Buffer.from([1]), randomBytes(7)])),
      ecdsaWithSha256,
      issuer,
      sequence(utcTime(from), utcTime(until)),
      subject,
      key.export({ type: 'spki', format: 'der' }),
      tagged(0xa3, sequence(...extensions)),
    );
    const signature = sign('sha256', toBeSigned, authority.privateKey);
    return pem('CERTIFICATE', sequence(toBeSigned, ecdsaWithSha256, tagged(0x03, Buffer.from([0]), signature)));
  };
  const isAuthority = extension('551d13', sequence(tagged(0x01, Buffer.from([0xff]))), true);
  return {
    cert: certificate(issuer, authority.publicKey, [isAuthority], 3650 * dayMs),
    issue(names, validForMs = 30 * dayMs) {
      const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const alternatives = names.map((one) =>
        isIP(one) === 0 ? tagged(0x82, Buffer.from(one)) : tagged(0x87, addressBytes(one)),
      );
      const subject = distinguishedName(names[0] ?? 'nobody');
      return {
        cert: certificate(subject, publicKey, [extension('551d11', sequence(...alternatives), false)], validForMs),
        key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
      };
    },
  };
}

/** An element of DER: tag, length, content. */
function tagged(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

const sequence = (...parts: readonly Buffer[]): Buffer => tagged(0x30, ...parts);
/** Of a number whose first bit is not set and whose first byte is not zero. */
const integer = (bytes: Buffer): Buffer => tagged(0x02, bytes);
const objectId = (hex: string): Buffer => tagged(0x06, Buffer.from(hex, 'hex'));
const ecdsaWithSha256 = sequence(objectId('2a8648ce3d040302'));
const distinguishedName = (name: string): Buffer =>
  sequence(tagged(0x31, sequence(objectId('550403'), tagged(0x0c, Buffer.from(name)))));
const extension = (id: string, value: Buffer, critical: boolean): Buffer =>
  sequence(objectId(id), ...(critical ? [tagged(0x01, Buffer.from([0xff]))] : []), tagged(0x04, value));
const utcTime = (ms: number): Buffer =>
  tagged(0x17, Buffer.from(`${new Date(ms).toISOString().replace(/[-:T]/g, '').slice(2, 14)}Z`));

function addressBytes(address: string): Buffer {
  if (isIP(address) === 4) return Buffer.from(address.split('.').map(Number));
  const [head = '', tail] = address.split('::');
  const groups = (text: string): string[] => (text === '' ? [] : text.split(':'));
  const before = groups(head);
  const after = tail === undefined ? [] : groups(tail);
  const all = [...before, ...new Array<string>(8 - before.length - after.length).fill('0'), ...after];
  return Buffer.from(all.map((group) => group.padStart(4, '0')).join(''), 'hex');
}

const pem = (label: string, bytes: Buffer): string =>
  `-----BEGIN ${label}-----\n${bytes.toString('base64').replace(/.{64}/g, '$&\n').trimEnd()}\n-----END ${label}-----\n`;
