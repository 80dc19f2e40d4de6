import { isJsonObject, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { isName, limits, objectText } from '../common/limits.js';

/** Messages by user and device; `*` stands for all devices. Contents are JSON text. */
export type MessageTexts = ReadonlyMap<string, ReadonlyMap<string, string>>;

/** All devices of a user. */
export const everyDevice = '*';

/**
 * Reads messages from outside.
 * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`, 413 `M_TOO_LARGE`
 */
export function parseMessages(messages: JsonObject): MessageTexts {
  let count = 0;
  return new Map(
    Object.entries(messages).map(([userId, devices]) => {
      if (!isValidUserId(userId)) throw MatrixError.invalidParam(`'${userId.slice(0, 255)}' is not a user id`);
      if (!isJsonObject(devices)) throw MatrixError.badJson("'messages' must hold messages by user and device");
      const texts = Object.entries(devices).map(([deviceId, content]): [string, string] => {
        if (++count > limits.toDeviceMessages)
          throw MatrixError.tooLarge(`Not more than ${limits.toDeviceMessages} messages can be sent at once`);
        if (!isName(deviceId)) throw MatrixError.notDeviceId();
        return [deviceId, objectText(content, 'A message', limits.toDeviceBytes)];
      });
      return [userId, new Map(texts)];
    }),
  );
}

/** An event in an inbox, as text. */
export function inboxText(type: string, sender: string, contentText: string): string {
  return `{"type":${JSON.stringify(type)},"sender":${JSON.stringify(sender)},"content":${contentText}}`;
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
