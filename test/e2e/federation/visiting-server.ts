import {
  buildEvent,
  parsePdu,
  type RoomEvent,
  roomVersionRules,
  type RoomVersionRules,
  signEvent,
} from '@rookery/events';
import { domainOf, type JsonObject } from '@rookery/matrix-types';
import { authTypesFor, stateKeyOf } from '@rookery/state-res';
import type { TestHomeserver } from '@rookery/testing';
import type { Answer, PlayedServer } from './federation-world.js';

const v1 = '/_matrix/federation/v1';
const v2 = '/_matrix/federation/v2';
const part = encodeURIComponent;
let count = 0;

/** What an event is to be. */
export interface VisitorDraft {
  readonly type: string;
  readonly sender: string;
  readonly content?: JsonObject;
  readonly stateKey?: string;
  readonly redacts?: string;
  /** The heads that the server knows unless told. */
  readonly prev?: readonly RoomEvent[];
  /** Chosen from the state unless told. */
  readonly auth?: readonly string[];
  readonly depth?: number;
  readonly eventId?: string;
}

/** Sends a transaction with PDUs and EDUs of a played server. */
export const sendTransaction = (
  from: PlayedServer,
  to: TestHomeserver,
  pdus: readonly unknown[],
  edus: readonly unknown[] = [],
  txnId = `t${(count += 1)}`,
): Promise<Answer> =>
  from.request(to, 'PUT', `${v1}/send/${txnId}`, {
    ...{ origin: from.name, origin_server_ts: Date.now(), pdus: pdus as JsonObject[], edus: edus as JsonObject[] },
  });

/** A room of another server, as a server that a test plays sees it from inside. */
export class Visit {
  readonly state = new Map<string, RoomEvent>();
  /** Every event that it knows. */
  readonly known = new Map<string, RoomEvent>();
  heads: RoomEvent[] = [];

  constructor(
    readonly server: PlayedServer,
    readonly home: TestHomeserver,
    readonly roomId: string,
    readonly rules: RoomVersionRules,
  ) {}

  /** Asks for the proposal of a membership. */
  static make(
    server: PlayedServer,
    home: TestHomeserver,
    kind: string,
    roomId: string,
    userId: string,
    versions: readonly string[] = ['1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12'],
  ): Promise<Answer> {
    const query = kind === 'leave' ? '' : `?${versions.map((version) => `ver=${version}`).join('&')}`;
    return server.request(home, 'GET', `${v1}/make_${kind}/${part(roomId)}/${part(userId)}${query}`);
  }

  /** The event that is proposed, made and signed. */
  static complete(server: PlayedServer, proposal: JsonObject, change: JsonObject = {}): RoomEvent {
    const rules = roomVersionRules(proposal['room_version'])!;
    const template = { ...(proposal['event'] as JsonObject), ...change };
    const hashes = new Map<string, string>();
    const idsIn = (list: unknown): string[] =>
      (list as unknown[]).map((entry) => {
        if (!Array.isArray(entry)) return entry as string;
        hashes.set(entry[0] as string, (entry[1] as { sha256: string }).sha256);
        return entry[0] as string;
      });
    const event = buildEvent(
      {
        roomId: template['room_id'] as string,
        type: template['type'] as string,
        stateKey: template['state_key'] as string,
        sender: template['sender'] as string,
        content: template['content'] as JsonObject,
        originServerTs: Date.now(),
        depth: template['depth'] as number,
        prevEventIds: idsIn(template['prev_events']),
        authEventIds: idsIn(template['auth_events']),
        referenceHashes: hashes,
        ...(rules.eventFormat === 'v1' && { eventId: `$v${(count += 1)}:${server.name}` }),
      },
      rules,
    );
    return signEvent(event, server.name, server.key);
  }

  /** Hands over the event of a membership. */
  static send(
    server: PlayedServer,
    home: TestHomeserver,
    kind: string,
    event: RoomEvent,
    query = '',
    content: JsonObject = event.pdu,
  ): Promise<Answer> {
    const version = kind === 'knock' ? v1 : v2;
    const uri = `${version}/send_${kind}/${part(event.roomId)}/${part(event.eventId)}${query}`;
    return server.request(home, 'PUT', uri, content);
  }

  /** Joins a room; throws when that is refused. */
  static async join(server: PlayedServer, home: TestHomeserver, roomId: string, userId: string): Promise<Visit> {
    const proposal = await Visit.make(server, home, 'join', roomId, userId);
    if (proposal.status !== 200) throw new Error(`make_join: ${JSON.stringify(proposal)}`);
    const event = Visit.complete(server, proposal.body);
    const answer = await Visit.send(server, home, 'join', event);
    if (answer.status !== 200) throw new Error(`send_join: ${JSON.stringify(answer)}`);
    const visit = new Visit(server, home, roomId, event.rules);
    for (const list of ['auth_chain', 'state'])
      for (const pdu of answer.body[list] as unknown[]) visit.learn(visit.parse(pdu), list === 'state');
    visit.apply(visit.parse(answer.body['event']));
    return visit;
  }

  parse(pdu: unknown): RoomEvent {
    return parsePdu(pdu, this.rules, { roomId: this.roomId });
  }

  learn(event: RoomEvent, isState: boolean): void {
    this.known.set(event.eventId, event);
    if (isState && event.stateKey !== undefined) this.state.set(stateKeyOf(event.type, event.stateKey), event);
  }

  /** Takes an event as the room's only head. */
  apply(event: RoomEvent): RoomEvent {
    this.learn(event, true);
    this.heads = [event];
    return event;
  }

  /** Takes an event of the other server as the head; throws when that does not give it out. */
  async follow(eventId: string): Promise<RoomEvent> {
    const answer = await this.server.request(this.home, 'GET', `${v1}/event/${part(eventId)}`);
    const [pdu] = (answer.body['pdus'] ?? []) as unknown[];
    if (pdu === undefined) throw new Error(`event: ${JSON.stringify(answer)}`);
    return this.apply(this.parse(pdu));
  }

  /** Makes an event; it is not the head yet. */
  make(draft: VisitorDraft): RoomEvent {
    const { rules } = this;
    const input = { type: draft.type, stateKey: draft.stateKey, sender: draft.sender, content: draft.content ?? {} };
    const prev = draft.prev ?? this.heads;
    const server = domainOf(draft.sender) === this.server.name ? this.server.name : domainOf(draft.sender);
    const event = buildEvent(
      {
        ...input,
        roomId: this.roomId,
        redacts: draft.redacts,
        originServerTs: Date.now(),
        depth: draft.depth ?? Math.max(0, ...prev.map((each) => each.depth)) + 1,
        prevEventIds: prev.map((each) => each.eventId),
        authEventIds:
          draft.auth ??
          authTypesFor(input, rules).flatMap(([type, key]) => this.state.get(stateKeyOf(type, key))?.eventId ?? []),
        ...(rules.eventFormat === 'v1' && { eventId: draft.eventId ?? `$v${(count += 1)}:${server}` }),
      },
      rules,
    );
    const signed = signEvent(event, server, this.server.key);
    this.known.set(signed.eventId, signed);
    return signed;
  }

  /** Makes an event and takes it as the head, without sending it. */
  next(draft: VisitorDraft): RoomEvent {
    return this.apply(this.make(draft));
  }

  /** A message, as the new head. */
  message(sender: string, body: string): RoomEvent {
    return this.next({ type: 'm.room.message', sender, content: { msgtype: 'm.text', body } });
  }

  /** Sends events in one transaction; what became of each. */
  async send(...events: readonly RoomEvent[]): Promise<Record<string, { error?: string }>> {
    const answer = await sendTransaction(
      this.server,
      this.home,
      events.map((event) => event.pdu),
    );
    if (answer.status !== 200) throw new Error(`send: ${JSON.stringify(answer)}`);
    return answer.body['pdus'] as Record<string, { error?: string }>;
  }
}
