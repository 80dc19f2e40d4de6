import { isJsonObject, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { isName, limits, objectText } from '../common/limits.js';
import type { InboxMessage } from './to-device.query.js';

/** Messages by user and device; `*` stands for all devices. Contents are JSON text. */
export type MessageTexts = ReadonlyMap<string, ReadonlyMap<string, string>>;

/** All devices of a user. */
export const everyDevice = '*';

/**
 * Reads messages from outside.
 * @param onBad what to do with an error of one entry, which is passed over unless this throws; throws it unless told
 * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`, 413 `M_TOO_LARGE`, also where there are too many
 */
export function parseMessages(messages: JsonObject, onBad: (error: MatrixError) => void = raise): MessageTexts {
  const found = new Map<string, Map<string, string>>();
  let count = 0;
  for (const [userId, devices] of Object.entries(messages)) {
    if (!isValidUserId(userId)) onBad(MatrixError.invalidParam(`'${userId.slice(0, 255)}' is not a user id`));
    else if (!isJsonObject(devices)) onBad(MatrixError.badJson("'messages' must hold messages by user and device"));
    else {
      const texts = new Map<string, string>();
      for (const [deviceId, content] of Object.entries(devices)) {
        if (++count > limits.toDeviceMessages)
          throw MatrixError.tooLarge(`Not more than ${limits.toDeviceMessages} messages can be sent at once`);
        try {
          if (!isName(deviceId)) throw MatrixError.notDeviceId();
          texts.set(deviceId, objectText(content, 'A message', limits.toDeviceBytes));
        } catch (error) {
          if (!MatrixError.is(error)) throw error;
          onBad(error);
        }
      }
      found.set(userId, texts);
    }
  }
  return found;
}

function raise(error: MatrixError): never {
  throw error;
}

/** An event in an inbox, as text. */
function inboxText(type: string, sender: string, contentText: string): string {
  return `{"type":${JSON.stringify(type)},"sender":${JSON.stringify(sender)},"content":${contentText}}`;
}

/** Messages as they go into inboxes, each for one device. */
export interface Spread {
  readonly inbox: readonly InboxMessage[];
  /** Bytes that nobody has sent: those of messages to all devices of a user, but for the first of each. */
  readonly copiedBytes: number;
}

/**
 * Gives each device its message.
 * @param devices that there are, by user; messages for others go nowhere
 * @throws MatrixError 413 `M_TOO_LARGE` where that makes too many messages, or too much of them
 */
export function spread(
  type: string,
  sender: string,
  texts: MessageTexts,
  devices: ReadonlyMap<string, readonly string[]>,
): Spread {
  const inbox: InboxMessage[] = [];
  let [bytes, copiedBytes] = [0, 0];
  for (const [userId, deviceIds] of devices) {
    const contents = texts.get(userId);
    // One text, however many devices get it.
    const written = new Map<string, { readonly json: string; readonly sizeBytes: number }>();
    for (const deviceId of deviceIds) {
      const key = contents?.has(deviceId) ? deviceId : everyDevice;
      const content = contents?.get(key);
      if (content === undefined) continue;
      let message = written.get(key);
      if (message) copiedBytes += message.sizeBytes;
      else {
        const json = inboxText(type, sender, content);
        written.set(key, (message = { json, sizeBytes: Buffer.byteLength(json) }));
      }
      bytes += message.sizeBytes;
      inbox.push({ userId, deviceId, json: message.json });
      if (inbox.length > limits.inboxMessages || bytes > limits.inboxBytes)
        throw MatrixError.tooLarge('That is too much for all of these devices at once');
    }
  }
  return { inbox, copiedBytes };
}

/** The content of an `m.direct_to_device` EDU, as text. @spec server-server-api#send-to-device-messaging */
export function eduText(
  type: string,
  sender: string,
  messageId: string,
  users: Readonly<Record<string, ReadonlyMap<string, string>>>,
): string {
  const messages = Object.entries(users).map(([userId, devices]) => {
    const texts = [...devices].map(([deviceId, text]) => `${JSON.stringify(deviceId)}:${text}`);
    return `${JSON.stringify(userId)}:{${texts.join(',')}}`;
  });
  const head = `"sender":${JSON.stringify(sender)},"type":${JSON.stringify(type)},"message_id":${JSON.stringify(messageId)}`;
  return `{${head},"messages":{${messages.join(',')}}}`;
}
