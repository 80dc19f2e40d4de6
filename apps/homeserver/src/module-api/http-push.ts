import { OutboundError, type OutboundHttp } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { MessagingApi } from '@rookery/module-api';
import type { Pusher, PushersService } from '@rookery/push';
import { plainJson } from './plain-json.js';

const timeoutMs = 30_000;
const maxMessageBytes = 65_536;
const maxAnswerBytes = 65_536;

/**
 * Sends what modules want to have on a device's screen, past push rules and queues.
 * @spec push-gateway-api#post_matrixpushv1notify
 */
export function httpPush(pushers: PushersService, http: OutboundHttp): MessagingApi['sendHttpPushNotification'] {
  const send = async (pusher: Pusher, message: JsonObject): Promise<boolean> => {
    const url = pusher.data['url'];
    if (typeof url !== 'string') return false;
    try {
      const answer = await http.json({ method: 'POST', url, json: message, timeoutMs, maxBytes: maxAnswerBytes });
      const rejected = isJsonObject(answer) ? answer['rejected'] : undefined;
      return !(Array.isArray(rejected) && rejected.includes(pusher.pushkey));
    } catch (error) {
      if (error instanceof OutboundError) return false;
      throw error;
    }
  };
  return async (userId, deviceId, content, tweaks, defaultPayload) => {
    const notification = plainJson(content, 'A notification');
    const extras = plainJson({ tweaks, default_payload: defaultPayload }, 'What goes with a notification');
    if (JSON.stringify({ notification, extras }).length > maxMessageBytes) {
      throw MatrixError.tooLarge('The notification is too large');
    }
    const all = await pushers.list(userId);
    const wanted = all.filter((pusher) => pusher.kind === 'http' && (deviceId == null || pusher.deviceId === deviceId));
    const taken = await Promise.all(
      wanted.map(async (pusher) => {
        const message = { notification: { ...notification, devices: [deviceOf(pusher, extras)] } };
        return [pusher.pushkey, await send(pusher, message)] as const;
      }),
    );
    return Object.fromEntries(taken);
  };
}

function deviceOf(pusher: Pusher, { tweaks, default_payload: payload }: JsonObject): JsonObject {
  const { url: _, ...data } = pusher.data;
  return {
    app_id: pusher.appId,
    pushkey: pusher.pushkey,
    pushkey_ts: Math.floor(pusher.ts / 1_000),
    data: payload === undefined ? data : { ...data, default_payload: payload },
    ...(tweaks === undefined ? {} : { tweaks }),
  };
}
