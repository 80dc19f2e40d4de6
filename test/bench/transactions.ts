import { canonicalJson, type RoomEvent } from '@rookery/events';
import { authorizationHeader } from '@rookery/federation-client';
import { type Dispatcher, request } from 'undici';
import type { PlayedServer } from '../e2e/federation/federation-world.js';
import { pool } from './support.js';

/** Most events in a transaction. */
export const perTransaction = 50;

/** A request that is signed and ready to be sent, and the events in it. */
export interface Transaction {
  readonly path: string;
  readonly authorization: string;
  readonly body: string;
  readonly eventIds: readonly string[];
}

/** The server that gets transactions. */
export interface Destination {
  readonly baseUrl: string;
  readonly name: string;
  /** What requests are made with, where that is not the pool of the benches. */
  readonly dispatcher?: Dispatcher;
}

let transactions = 0;

/** Puts PDUs of a played server into a transaction; texts are taken as they are. */
export function transactionOf(
  { name, key }: Pick<PlayedServer, 'name' | 'key'>,
  pdus: readonly (RoomEvent | string)[],
  destination: string,
): Transaction {
  const texts = pdus.map((pdu) => (typeof pdu === 'string' ? pdu : canonicalJson(pdu.pdu)));
  const body = `{"edus":[],"origin":"${name}","origin_server_ts":${Date.now()},"pdus":[${texts.join()}]}`;
  const path = `/_matrix/federation/v1/send/t${(transactions += 1)}`;
  const signed = { method: 'PUT', uri: path, origin: name, destination, canonicalContent: body };
  const eventIds = pdus.flatMap((pdu) => (typeof pdu === 'string' ? [] : pdu.eventId));
  return { path, body, eventIds, authorization: authorizationHeader(signed, key) };
}

/** Sends a transaction. @returns the status of the answer */
export async function deliver(
  { baseUrl, dispatcher = pool }: Omit<Destination, 'name'>,
  { path, authorization, body }: Transaction,
): Promise<number> {
  const headers = { authorization, 'content-type': 'application/json' };
  const answer = await request(`${baseUrl}${path}`, { method: 'PUT', dispatcher, headers, body });
  await answer.body.dump();
  return answer.statusCode;
}

/** As other servers do it: a busy one that has no time to fetch a key refuses at first. */
const [maxTries, retryMs] = [20, 3_000];

/**
 * Sends events in the order in which they are, in as many transactions as they need.
 * @param delivered called with the last event of each, and waited for before the next
 * @throws Error when one is not taken, however often it is sent
 */
export async function deliverAll(
  played: PlayedServer,
  to: Destination,
  events: readonly RoomEvent[],
  delivered: (last: RoomEvent) => Promise<unknown> = () => Promise.resolve(),
): Promise<void> {
  for (let from = 0; from < events.length; from += perTransaction) {
    const some = events.slice(from, from + perTransaction);
    const transaction = transactionOf(played, some, to.name);
    for (let tries = 1; ; tries++) {
      const status = await deliver(to, transaction);
      if (status === 200) break;
      if (tries === maxTries) throw new Error(`${to.name} answers a transaction with ${status}`);
      await new Promise((resolve) => setTimeout(resolve, retryMs));
    }
    await delivered(some.at(-1)!);
  }
}
