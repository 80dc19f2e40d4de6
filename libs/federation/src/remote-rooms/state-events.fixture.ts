import { buildEvent, pduText, type RoomEvent, roomVersionRules, type RoomVersionRules } from '@rookery/events';

/** Makes the state events of one room that another server tells of. */
export class StateEvents {
  readonly rules: RoomVersionRules;
  #ts = 0;

  constructor(
    readonly version: string,
    private readonly creator: string,
    private readonly roomId: string,
  ) {
    this.rules = roomVersionRules(version)!;
  }

  create(content: RoomEvent['content'] = {}): RoomEvent {
    return this.make('m.room.create', '', { room_version: this.version, ...content }, []);
  }

  /** @param auth the events that allow it, the create event first; it follows upon them */
  make(type: string, stateKey: string, content: RoomEvent['content'], auth: readonly RoomEvent[]): RoomEvent {
    const { createEventImplied } = this.rules;
    const sender = type === 'm.room.member' ? stateKey : this.creator;
    const named = createEventImplied ? auth.filter((event) => event.type !== 'm.room.create') : auth;
    const roomId = auth[0]?.roomId ?? (createEventImplied ? undefined : this.roomId);
    const ts = ++this.#ts;
    return buildEvent(
      {
        ...{ roomId, type, stateKey, sender, content, originServerTs: ts, depth: ts },
        prevEventIds: auth.map(({ eventId }) => eventId),
        authEventIds: named.map(({ eventId }) => eventId),
      },
      this.rules,
    );
  }
}

/** An event as it goes over the wire, without anybody's signature. */
export const unsignedPdu = (event: RoomEvent): object => ({
  ...(JSON.parse(pduText(event)) as object),
  signatures: {},
});
