import { Injectable } from '@nestjs/common';
import { OutboundError, OutboundHttp } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { MessagingApi } from '@rookery/module-api';
import { type Pusher, PushersService, PushRulesService } from '@rookery/push';
import { isRuleKind, parseActions } from '@rookery/push-rules';
import { LocalAccounts } from '../accounts/local-accounts.js';
import { plainJson } from '../plain-json.js';

const timeoutMs = 30_000;
const maxMessageBytes = 65_536;
const maxAnswerBytes = 65_536;

/** Push rules as modules set them, and what they want to have on a device's screen. */
@Injectable()
export class ModulePush {
  constructor(
    private readonly local: LocalAccounts,
    private readonly pushRules: PushRulesService,
    private readonly pushers: PushersService,
    private readonly http: OutboundHttp,
  ) {}

  checkPushRuleActions(actions: readonly unknown[]): void {
    const parsed = parseActions(actions);
    if (!parsed.ok) throw MatrixError.invalidParam(parsed.reason);
  }

  async setPushRuleAction(
    ...[userId, scope, kind, ruleId, actions]: Parameters<MessagingApi['setPushRuleAction']>
  ): Promise<void> {
    if (scope !== 'global') throw MatrixError.invalidParam("The only scope of push rules is 'global'");
    if (!isRuleKind(kind)) throw MatrixError.invalidParam('There is no such kind of push rule');
    await this.local.get(userId);
    await this.pushRules.setActions(userId, kind, ruleId, actions);
  }

  /**
   * Past push rules and queues.
   * @spec push-gateway-api#post_matrixpushv1notify
   */
  async sendHttpPushNotification(
    ...[userId, deviceId, content, tweaks, defaultPayload]: Parameters<MessagingApi['sendHttpPushNotification']>
  ): ReturnType<MessagingApi['sendHttpPushNotification']> {
    const notification = plainJson(content, 'A notification');
    const extras = plainJson({ tweaks, default_payload: defaultPayload }, 'What goes with a notification');
    if (JSON.stringify({ notification, extras }).length > maxMessageBytes) {
      throw MatrixError.tooLarge('The notification is too large');
    }
    const all = await this.pushers.list(userId);
    const wanted = all.filter((pusher) => pusher.kind === 'http' && (deviceId == null || pusher.deviceId === deviceId));
    const taken = await Promise.all(
      wanted.map(async (pusher) => {
        const message = { notification: { ...notification, devices: [deviceOf(pusher, extras)] } };
        return [pusher.pushkey, await this.#send(pusher, message)] as const;
      }),
    );
    return Object.fromEntries(taken);
  }

  /** @returns whether the push gateway took it */
  async #send(pusher: Pusher, message: JsonObject): Promise<boolean> {
    const url = pusher.data['url'];
    if (typeof url !== 'string') return false;
    try {
      const answer = await this.http.json({ method: 'POST', url, json: message, timeoutMs, maxBytes: maxAnswerBytes });
      const rejected = isJsonObject(answer) ? answer['rejected'] : undefined;
      return !(Array.isArray(rejected) && rejected.includes(pusher.pushkey));
    } catch (error) {
      if (error instanceof OutboundError) return false;
      throw error;
    }
  }
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
