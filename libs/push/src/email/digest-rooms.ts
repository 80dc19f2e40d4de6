import { Injectable } from '@nestjs/common';
import { prejoinStateOf } from '@rookery/events';
import { localpartOf } from '@rookery/matrix-types';
import { EventStore, RoomStateReader, type StoredEvent, TimelineReader, VisibilityFilter } from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';
import type { DigestRoom, Senders } from './digest-content.js';

/** Reads what mails show of rooms. */
@Injectable()
export class DigestRooms {
  constructor(
    private readonly events: EventStore,
    private readonly state: RoomStateReader,
    private readonly timeline: TimelineReader,
    private readonly visibility: VisibilityFilter,
  ) {}

  /** What a user may see of what stands just before and just after some events, by the event. */
  async #around(userId: string, unread: readonly StoredEvent[]): Promise<DigestRoom['around']> {
    const neighbors = await this.timeline.neighbors(unread.map(({ event }) => event.eventId));
    const ids = new Set([...neighbors.values()].flatMap(({ before, after }) => [before, after]));
    const stored = await this.events.inOrder([...ids].filter((id) => id !== undefined));
    const seen = await this.visibility.visible(
      userId,
      stored.filter(({ redactedBy }) => redactedBy === undefined),
    );
    const byId = new Map(seen.map((one) => [one.stored.event.eventId, one.stored.event]));
    return new Map(
      [...neighbors].map(([id, { before, after }]) => [
        id,
        { before: byId.get(before ?? ''), after: byId.get(after ?? '') },
      ]),
    );
  }

  /** Names and pictures of rooms and senders, in a few queries and the events themselves. */
  async read(userId: string, unread: readonly StoredEvent[]): Promise<{ rooms: DigestRoom[]; senders: Senders }> {
    const around = await this.#around(userId, unread);
    const beside = [...around.values()].flatMap(({ before, after }) => [before, after]);
    const byRoom = Map.groupBy(unread, ({ event }) => event.roomId);
    const types = ['m.room.name', 'm.room.canonical_alias', 'm.room.avatar', 'm.room.create'] as const;
    const members = [
      ...new Set([...unread.map(({ event }) => event.sender), ...beside.flatMap((event) => event?.sender ?? [])]),
    ];
    const states = await this.state.currentIdsOf([...byRoom.keys()], {
      types: [
        ...types.map((type) => [type, ''] as const),
        ...members.map((userId) => ['m.room.member', userId] as const),
      ],
    });
    const loaded = await this.events.events([...states.values()].flatMap((ids) => [...ids.values()]));
    const text = (roomId: string, type: string, stateKey: string, field: string): string | undefined => {
      const id = states.get(roomId)?.get(stateKeyOf(type, stateKey));
      const value =
        (id === undefined ? undefined : loaded.get(id)?.content)?.[field] ??
        shownWithInvite(roomId, type, stateKey, field);
      return typeof value === 'string' && value !== '' ? value : undefined;
    };
    // Of a room that the user is only invited to, this server may know what came with the invite, and no more.
    const shownWithInvite = (roomId: string, type: string, stateKey: string, field: string): unknown => {
      const shown = byRoom.get(roomId)?.flatMap(({ event }) => prejoinStateOf(event)) ?? [];
      const found = shown.find((one) => one['type'] === type && one['state_key'] === stateKey);
      return (found?.['content'] as Record<string, unknown> | undefined)?.[field];
    };
    const rooms = [...byRoom].map(([roomId, events]) => ({
      roomId,
      name: text(roomId, 'm.room.name', '', 'name') ?? text(roomId, 'm.room.canonical_alias', '', 'alias'),
      avatarUrl: text(roomId, 'm.room.avatar', '', 'url'),
      isSpace: text(roomId, 'm.room.create', '', 'type') === 'm.space',
      events: events.map(({ event }) => event),
      around,
    }));
    const senders: Senders = (roomId, userId) => ({
      name: text(roomId, 'm.room.member', userId, 'displayname') ?? localpartOf(userId),
      avatarUrl: text(roomId, 'm.room.member', userId, 'avatar_url'),
    });
    return { rooms, senders };
  }
}
