import type { RoomEvent } from '@rookery/events';
import type { SubjectName } from '@rookery/templates';

/** A room of a mail about missed messages. */
export interface DigestRoom {
  readonly roomId: string;
  /** The room's own name; absent where it has none. */
  readonly name: string | undefined;
  readonly avatarUrl: string | undefined;
  readonly isSpace: boolean;
  /** What was missed there, oldest first. */
  readonly events: readonly RoomEvent[];
}

/** Names and pictures of those who wrote, by room and user. */
export type Senders = (
  roomId: string,
  userId: string,
) => { readonly name: string; readonly avatarUrl?: string | undefined };

/** What a mail says in its subject and its first line. */
export interface DigestSubject {
  readonly name: SubjectName;
  readonly values: Readonly<Record<string, string>>;
}

const isInvite = (event: RoomEvent): boolean => event.type === 'm.room.member';

/** The subject that says the most about what was missed. */
export function subjectOf(rooms: readonly DigestRoom[], senders: Senders): DigestSubject {
  const [room] = rooms;
  const [event] = room?.events ?? [];
  if (room === undefined || event === undefined) return { name: 'messages_from_person', values: { person: '' } };
  const { name } = room;
  const person = senders(room.roomId, event.sender).name;
  if (rooms.length > 1) {
    return name === undefined
      ? { name: 'messages_from_person_and_others', values: { person } }
      : { name: 'messages_in_room_and_others', values: { room: name } };
  }
  if (isInvite(event)) {
    if (name === undefined) return { name: 'invite_from_person', values: { person } };
    return room.isSpace
      ? { name: 'invite_from_person_to_space', values: { person, space: name } }
      : { name: 'invite_from_person_to_room', values: { person, room: name } };
  }
  if (room.events.length === 1) {
    return name === undefined
      ? { name: 'message_from_person', values: { person } }
      : { name: 'message_from_person_in_room', values: { person, room: name } };
  }
  return name === undefined
    ? { name: 'messages_from_person', values: { person } }
    : { name: 'messages_in_room', values: { room: name } };
}

/** A small number that stays the same for a text: templates pick a color by it. */
const hashOf = (text: string): number => [...text].reduce((sum, character) => sum + (character.codePointAt(0) ?? 0), 0);

/** Longest text of one message in a mail, characters. */
const maxBody = 2_000;

/** The variables `rooms` of the template. */
export function roomValues(
  rooms: readonly DigestRoom[],
  senders: Senders,
  options: { readonly clientUrl: string | undefined; readonly withContent: boolean },
): object[] {
  const link = (...path: string[]): string =>
    `${options.clientUrl === undefined ? 'https://matrix.to/#' : `${options.clientUrl.replace(/\/$/, '')}/#/room`}/${path
      .map((part) => encodeURIComponent(part))
      .join('/')}`;
  return rooms.map(({ roomId, name, avatarUrl, events }) => ({
    title: name ?? [...new Set(events.map((event) => senders(roomId, event.sender).name))].slice(0, 3).join(', '),
    hash: hashOf(roomId),
    invite: events.every(isInvite),
    link: link(roomId),
    avatar_url: avatarUrl ?? null,
    notifs: events
      .filter((event) => !isInvite(event))
      .map((event) => ({
        link: link(roomId, event.eventId),
        ts: event.originServerTs,
        messages: [messageValues(event, senders(roomId, event.sender), options.withContent)],
      })),
  }));
}

function messageValues(event: RoomEvent, sender: ReturnType<Senders>, withContent: boolean): object {
  const { body, msgtype, url } = event.content;
  return {
    event_type: event.type,
    is_historical: false,
    id: event.eventId,
    ts: event.originServerTs,
    sender_name: sender.name,
    sender_avatar_url: sender.avatarUrl ?? null,
    sender_hash: hashOf(event.sender),
    msgtype: withContent && typeof msgtype === 'string' ? msgtype : null,
    body_text_html: '',
    body_text_plain: withContent && typeof body === 'string' ? body.slice(0, maxBody) : 'sent something',
    image_url: withContent && msgtype === 'm.image' && typeof url === 'string' ? url : null,
  };
}
