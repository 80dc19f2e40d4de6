import { domainOf, type Signatures } from '@rookery/matrix-types';
import type { RoomEvent } from './event.js';
import { hasValidContentHash, signedText } from './hashes.js';
import { redactEvent } from './redaction.js';
import type { VerifyKey } from './signing-key.js';

/** A key of a server, as a key ring knows it. */
export interface KnownKey {
  readonly key: VerifyKey;
  /**
   * Until when the key may be relied on, milliseconds since the epoch: the `valid_until_ts` of a current key, at most
   * seven days ahead of now, or the `expired_ts` of an old one.
   */
  readonly validUntilTs: number;
}

/** Finds a key; `undefined` when it cannot be had. Called only for keys that the event names. */
export type KeyLookup = (serverName: string, keyId: string) => KnownKey | undefined | Promise<KnownKey | undefined>;

/** Outcome of {@link verifyEventSignatures}. */
export type SignatureVerdict =
  | { readonly valid: true }
  | {
      readonly valid: false;
      readonly serverName: string;
      readonly reason: 'missing' | 'unknownKey' | 'expiredKey' | 'wrong';
    };

/** Most signatures of one server that are looked at. */
const maxSignaturesPerServer = 8;

/**
 * The event as everybody keeps it that comes from elsewhere: with all that it says where the content hash is right, else redacted. What is
 * left decides whose signatures it needs, so ask for this first: a key that lets somebody off signing may be among what goes.
 * @spec server-server-api#validating-hashes-and-signatures-on-received-events
 */
export const soundForm = (event: RoomEvent): RoomEvent => (hasValidContentHash(event) ? event : redactEvent(event));

/**
 * The servers whose signatures an event must carry in its {@link soundForm}, without duplicates. Empty for an invite made from a third-party
 * invite, which another server may send; such an event stands by the signature inside its content.
 * @spec server-server-api#validating-hashes-and-signatures-on-received-events
 */
export function requiredSigners(event: RoomEvent): string[] {
  const signers = new Set<string>();
  const { content, rules } = event;
  const membership = event.type === 'm.room.member' ? content['membership'] : undefined;
  if (!(membership === 'invite' && Object.hasOwn(content, 'third_party_invite'))) signers.add(domainOf(event.sender));
  if (rules.eventFormat === 'v1') signers.add(domainOf(event.eventId));
  if (rules.joinRules.restricted && membership === 'join') {
    const authorisedVia = content['join_authorised_via_users_server'];
    // What names no server cannot have been signed by it.
    if (authorisedVia !== undefined) signers.add(typeof authorisedVia === 'string' ? domainOf(authorisedVia) : '');
  }
  return [...signers];
}

/**
 * The Ed25519 key ids with which a server claims to have signed an event, at most eight; so that a key ring can fetch
 * the keys of many events at once.
 */
export function signingKeyIds(event: RoomEvent, serverName: string): string[] {
  const signatures = event.pdu['signatures'] as Signatures;
  if (!Object.hasOwn(signatures, serverName)) return [];
  return Object.keys(signatures[serverName] ?? {})
    .filter((keyId) => keyId.startsWith('ed25519:'))
    .slice(0, maxSignaturesPerServer);
}

/**
 * Whether every server that must have signed an event did: one valid signature each is enough. From room version 5 on
 * a key counts only if it was valid when the event claims to have been made. Verification runs on other threads.
 * @throws only what `lookup` throws
 * @spec server-server-api#validating-hashes-and-signatures-on-received-events
 */
export async function verifyEventSignatures(event: RoomEvent, lookup: KeyLookup): Promise<SignatureVerdict> {
  const text = signedText(event.pdu, event.rules);
  for (const serverName of requiredSigners(event)) {
    const reason = await problemWith(event, serverName, text, lookup);
    if (reason !== undefined) return { valid: false, serverName, reason };
  }
  return { valid: true };
}

/**
 * Whether an event carries a valid signature of one server by one key: for policy servers and other signatures beyond
 * the required ones.
 */
export function hasValidSignature(event: RoomEvent, serverName: string, keyId: string, key: VerifyKey): boolean {
  const signature = signatureOf(event, serverName, keyId);
  return signature !== undefined && key.verify(signedText(event.pdu, event.rules), signature);
}

function signatureOf(event: RoomEvent, serverName: string, keyId: string): string | undefined {
  const signatures = event.pdu['signatures'] as Signatures;
  const ofServer = Object.hasOwn(signatures, serverName) ? signatures[serverName] : undefined;
  return ofServer !== undefined && Object.hasOwn(ofServer, keyId) ? ofServer[keyId] : undefined;
}

async function problemWith(
  event: RoomEvent,
  serverName: string,
  text: string,
  lookup: KeyLookup,
): Promise<'missing' | 'unknownKey' | 'expiredKey' | 'wrong' | undefined> {
  let problem: 'missing' | 'unknownKey' | 'expiredKey' | 'wrong' = 'missing';
  for (const keyId of signingKeyIds(event, serverName)) {
    const known = await lookup(serverName, keyId);
    if (known === undefined) problem = 'unknownKey';
    else if (event.rules.keyValidityEnforced && known.validUntilTs < event.originServerTs) problem = 'expiredKey';
    else if (await known.key.verifyInBackground(text, signatureOf(event, serverName, keyId) ?? '')) return undefined;
    else problem = 'wrong';
  }
  return problem;
}
