import type { RoomEvent } from '@rookery/events';
import type { SubjectName } from '@rookery/templates';
import { mailHtml, plainHtml } from './message-html.js';

/** A room of a mail about missed messages. */
export interface DigestRoom {
  readonly roomId: string;
  /** The room's own name; absent where it has none. */
  readonly name: string | undefined;
  readonly avatarUrl: string | undefined;
  readonly isSpace: boolean;
  /** What was missed there, oldest first. */
  readonly events: readonly RoomEvent[];
  /** What was said just before and just after each of them and the user may see, by the missed event. */
  readonly around: ReadonlyMap<
    string,
    { readonly before?: RoomEvent | undefined; readonly after?: RoomEvent | undefined }
  >;
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
export async function roomValues(
  rooms: readonly DigestRoom[],
  senders: Senders,
  options: { readonly clientUrl: string | undefined; readonly withContent: boolean },
): Promise<object[]> {
  const link = (...path: string[]): string =>
    `${options.clientUrl === undefined ? 'https://matrix.to/#' : `${options.clientUrl.replace(/\/$/, '')}/#/room`}/${path
      .map((part) => encodeURIComponent(part))
      .join('/')}`;
  return Promise.all(
    rooms.map(async ({ roomId, name, avatarUrl, events, around }) => ({
      title: name ?? [...new Set(events.map((event) => senders(roomId, event.sender).name))].slice(0, 3).join(', '),
      hash: hashOf(roomId),
      invite: events.every(isInvite),
      link: link(roomId),
      avatar_url: avatarUrl ?? null,
      notifs: withoutRepeats(
        await Promise.all(
          events
            .filter((event) => !isInvite(event))
            .map(async (event) => {
              const { before, after } = around.get(event.eventId) ?? {};
              const shown = [before, event, after].filter(
                (one) => one !== undefined && (one === event || isMessage(one)),
              );
              return {
                link: link(roomId, event.eventId),
                ts: event.originServerTs,
                messages: await Promise.all(
                  shown.map((one) =>
                    messageValues(one!, senders(roomId, one!.sender), { ...options, isHistorical: one !== event }),
                  ),
                ),
              };
            }),
        ),
      ),
    })),
  );
}

const isMessage = (event: RoomEvent): boolean => event.type === 'm.room.message' || event.type === 'm.room.encrypted';

interface MessageValues {
  readonly id: string;
  readonly is_historical: boolean;
}

interface Notification<Message extends MessageValues> {
  readonly link: string;
  readonly ts: number;
  readonly messages: Message[];
}

/** Messages that follow each other are told in one piece: what is one's neighbor is not told twice. */
function withoutRepeats<Message extends MessageValues>(all: readonly Notification<Message>[]): Notification<Message>[] {
  const result: Notification<Message>[] = [];
  for (const one of all) {
    const last = result.at(-1);
    const told = new Map(last?.messages.map((message, index) => [message.id, index]));
    if (last === undefined || !one.messages.some(({ id }) => told.has(id))) {
      result.push({ ...one, messages: [...one.messages] });
      continue;
    }
    for (const message of one.messages) {
      const index = told.get(message.id);
      if (index === undefined) last.messages.push(message);
      else if (!message.is_historical) last.messages[index] = message;
    }
  }
  return result;
}

interface MessageOptions {
  readonly withContent: boolean;
  readonly isHistorical: boolean;
}

async function messageValues(
  event: RoomEvent,
  sender: ReturnType<Senders>,
  { withContent, isHistorical }: MessageOptions,
): Promise<MessageValues> {
  const { body, msgtype, url } = event.content;
  const plain = withContent && typeof body === 'string' ? body.slice(0, maxBody) : undefined;
  return {
    event_type: event.type,
    is_historical: isHistorical,
    id: event.eventId,
    ts: event.originServerTs,
    sender_name: sender.name,
    sender_avatar_url: sender.avatarUrl ?? null,
    sender_hash: hashOf(event.sender),
    msgtype: withContent && typeof msgtype === 'string' ? msgtype : null,
    body_text_html: plain === undefined ? '' : ((await formattedBody(event)) ?? plainHtml(plain)),
    body_text_plain: plain ?? 'sent something',
    image_url: withContent && msgtype === 'm.image' && typeof url === 'string' ? url : null,
  } as MessageValues;
}

/** @spec client-server-api#mroommessage-msgtypes */
async function formattedBody({ content }: RoomEvent): Promise<string | undefined> {
  const { format, formatted_body: formatted } = content;
  return format === 'org.matrix.custom.html' && typeof formatted === 'string' ? mailHtml(formatted) : undefined;
}
