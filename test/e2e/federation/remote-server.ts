import {
  buildEvent,
  parsePdu,
  type RoomEvent,
  roomVersionRules,
  type RoomVersionRules,
  signEvent,
  SigningKey,
} from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { authTypesFor, stateKeyOf } from '@rookery/state-res';

/** The name of the server that these tests play. */
export const remoteName = 'remote.test';

const key = SigningKey.fromSeed('remote', new Uint8Array(32).fill(9));

/** State by `stateKeyOf(type, key)`. */
export type State = ReadonlyMap<string, RoomEvent>;

/** What an event is to be. */
export interface RemoteDraft {
  readonly type: string;
  readonly sender: string;
  readonly content?: JsonObject;
  readonly stateKey?: string;
  readonly redacts?: string;
  /** Chosen from the state unless told. */
  readonly auth?: readonly string[];
  /** One more than its ancestors' unless told. */
  readonly depth?: number;
  readonly prev?: readonly string[];
  /** Room versions 1 and 2. */
  readonly eventId?: string;
  readonly originServerTs?: number;
}

/** A server elsewhere, in one room, whose events say what a test wants. */
export class RemoteServer {
  readonly rules: RoomVersionRules;
  /** Every event that it has made, for those who ask. */
  readonly known = new Map<string, RoomEvent>();
  #nowMs: number;

  /**
   * @param nowMs when its first event is made, milliseconds since the epoch
   * @throws Error for a version that there is not
   */
  constructor(
    readonly version: string,
    private readonly roomId: string,
    nowMs = Date.now(),
  ) {
    this.#nowMs = nowMs;
    const rules = roomVersionRules(version);
    if (!rules) throw new Error(`there is no room version ${version}`);
    this.rules = rules;
  }

  /** Makes an event on top of others. */
  make(draft: RemoteDraft, prev: readonly RoomEvent[], state: State): RoomEvent {
    const input = { type: draft.type, stateKey: draft.stateKey, sender: draft.sender, content: draft.content ?? {} };
    this.#nowMs += 1;
    const event = signEvent(
      buildEvent(
        {
          ...input,
          roomId: this.roomId,
          redacts: draft.redacts,
          originServerTs: draft.originServerTs ?? this.#nowMs,
          depth: draft.depth ?? Math.max(0, ...prev.map((each) => each.depth)) + 1,
          prevEventIds: draft.prev ?? prev.map((each) => each.eventId),
          authEventIds:
            draft.auth ??
            authTypesFor(input, this.rules).flatMap(([type, k]) => state.get(stateKeyOf(type, k))?.eventId ?? []),
          ...(this.rules.eventFormat === 'v1' && { eventId: draft.eventId ?? `$${this.#nowMs}:${remoteName}` }),
        },
        this.rules,
      ),
      remoteName,
      key,
    );
    this.known.set(event.eventId, event);
    return event;
  }

  /** The text of an event, changed in whatever way: what comes over the wire. */
  text(event: RoomEvent, change: Readonly<JsonObject>, without: readonly string[] = []): string {
    const pdu: JsonObject = { ...event.pdu, ...change };
    for (const name of without) delete pdu[name];
    return JSON.stringify(pdu);
  }

  /** Reads a text as the server under test does before anything else. */
  parse(text: string): RoomEvent {
    return parsePdu(text, this.rules, { roomId: this.roomId });
  }
}

/** The state after events. */
export function applied(state: State, ...events: readonly RoomEvent[]): Map<string, RoomEvent> {
  const after = new Map(state);
  for (const event of events)
    if (event.stateKey !== undefined) after.set(stateKeyOf(event.type, event.stateKey), event);
  return after;
}
