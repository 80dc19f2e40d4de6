import { buildEvent, type RoomEvent, roomVersionRules, signEvent, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { authTypesFor, stateKeyOf } from '@rookery/state-res';

/** The name of the other server. */
export const remoteServer = 'remote.test';
export const remoteKey = SigningKey.fromSeed('remote', new Uint8Array(32).fill(9));
/** Users of the other server. */
export const zoe = `@zoe:${remoteServer}`;
export const yan = `@yan:${remoteServer}`;

/** No two events are of the same moment, of whatever room. */
let nowMs = 1_000_000;

/** A server elsewhere, whose events can be made to say anything. */
export class RemoteServer {
  readonly known = new Map<string, RoomEvent>();

  constructor(
    readonly version: string,
    private roomId: string | undefined,
  ) {}

  /** Adds an event with explicit ancestors; auth events are chosen from `state` unless told. */
  make(
    draft: {
      type: string;
      sender: string;
      content?: JsonObject;
      stateKey?: string;
      redacts?: string;
      auth?: string[];
      depth?: number;
    },
    prev: readonly RoomEvent[],
    state: ReadonlyMap<string, RoomEvent>,
  ): RoomEvent {
    const rules = roomVersionRules(this.version)!;
    const input = { type: draft.type, stateKey: draft.stateKey, sender: draft.sender, content: draft.content ?? {} };
    const auth =
      draft.auth ?? authTypesFor(input, rules).flatMap(([type, k]) => state.get(stateKeyOf(type, k))?.eventId ?? []);
    const event = signEvent(
      buildEvent(
        {
          ...input,
          roomId: this.roomId,
          redacts: draft.redacts,
          originServerTs: nowMs++,
          depth: draft.depth ?? Math.max(0, ...prev.map((each) => each.depth)) + 1,
          prevEventIds: prev.map((each) => each.eventId),
          authEventIds: auth,
          ...(rules.eventFormat === 'v1' && { eventId: `$${nowMs}:${remoteServer}` }),
        },
        rules,
      ),
      remoteServer,
      remoteKey,
    );
    this.roomId ??= event.roomId;
    this.known.set(event.eventId, event);
    return event;
  }
}

/** A state with events laid over it. */
export const applied = (state: ReadonlyMap<string, RoomEvent>, ...events: RoomEvent[]): Map<string, RoomEvent> => {
  const after = new Map(state);
  for (const event of events)
    if (event.stateKey !== undefined) after.set(stateKeyOf(event.type, event.stateKey), event);
  return after;
};

/** The state events of a room that are made by `add`, each upon the one before it. */
export function stateLine(server: RemoteServer): {
  readonly state: ReadonlyMap<string, RoomEvent>;
  readonly add: (type: string, stateKey: string, sender: string, content: JsonObject) => RoomEvent;
} {
  const state = new Map<string, RoomEvent>();
  let last: readonly RoomEvent[] = [];
  const add = (type: string, stateKey: string, sender: string, content: JsonObject): RoomEvent => {
    const event = server.make({ type, stateKey, sender, content }, last, state);
    state.set(stateKeyOf(type, stateKey), event);
    last = [event];
    return event;
  };
  return { state, add };
}
