import { isValidUserId, MatrixError } from '@rookery/matrix-types';
import type { MessagingApi, ModuleTemplate } from '@rookery/module-api';
import type { Config, Ids, Logger } from '@rookery/platform';
import type { PushRulesService } from '@rookery/push';
import { isRuleKind, parseActions } from '@rookery/push-rules';
import { type Mailer, Pages, pagesOptionsOf } from '@rookery/templates';
import { isAbsolute } from 'node:path';
import type { PresenceService } from '@rookery/ephemeral';
import type { LocalAccounts } from './module-requester.js';

/** What people and devices are told through. */
export interface MessagingParts {
  readonly config: Config;
  readonly ids: Ids;
  readonly logger: Logger;
  readonly local: LocalAccounts;
  readonly pushRules: PushRulesService;
  readonly presence: PresenceService;
  readonly push: MessagingApi['sendHttpPushNotification'];
  /** Absent when the server sends no mail. */
  readonly mailer: Mailer | undefined;
}

const maxTemplates = 100;
const maxPresences = 1_000;
const maxMailBytes = 1_048_576;
const longestStatusBytes = 1_024;
const presences = new Set(['online', 'unavailable', 'offline', 'busy']);

const isStatus = (text: string): boolean =>
  typeof text === 'string' &&
  Buffer.byteLength(text) <= longestStatusBytes &&
  text.isWellFormed() &&
  !text.includes('\0');

/** The part of the module API that is about telling people and devices. */
export function messagingCapabilities(parts: MessagingParts): MessagingApi {
  const { local, presence, pushRules } = parts;
  return {
    async sendLocalOnlinePresenceTo(userIds) {
      if (userIds.length > maxPresences) throw new RangeError(`At most ${maxPresences} users are told at once`);
      for (const userId of userIds) {
        if (!isValidUserId(userId)) throw MatrixError.notUserId();
      }
      await presence.sendLocalPresenceTo(userIds);
    },

    async setPresenceForUsers(states) {
      if (states.length > maxPresences) throw new RangeError(`At most ${maxPresences} presences are set at once`);
      for (const { userId, state, statusMsg } of states) {
        local.assertLocal(userId);
        if (!presences.has(state)) throw MatrixError.invalidParam('There is no such presence');
        if (statusMsg !== undefined && !isStatus(statusMsg)) {
          throw MatrixError.invalidParam(`A status message is a text of at most ${longestStatusBytes} bytes`);
        }
      }
      await presence.setForUsers(states);
      // Told at once: whoever looks after this call sees it.
      await presence.flush();
    },

    sendHttpPushNotification: parts.push,
    async sendMail(to, subject, html, text) {
      if (!parts.mailer) throw MatrixError.internal('This server sends no mail');
      if (Buffer.byteLength(html) + Buffer.byteLength(text) > maxMailBytes) {
        throw MatrixError.tooLarge(`A mail may not be larger than ${maxMailBytes} bytes`);
      }
      await parts.mailer.sendWritten({ to, subject, html, text });
    },
    readTemplates: async (filenames, folder) => readTemplates(parts, filenames, folder),

    checkPushRuleActions(actions) {
      const parsed = parseActions(actions);
      if (!parsed.ok) throw MatrixError.invalidParam(parsed.reason);
    },

    async setPushRuleAction(userId, scope, kind, ruleId, actions) {
      if (scope !== 'global') throw MatrixError.invalidParam("The only scope of push rules is 'global'");
      if (!isRuleKind(kind)) throw MatrixError.invalidParam('There is no such kind of push rule');
      await local.get(userId);
      await pushRules.setActions(userId, kind, ruleId, actions);
    },
  };
}

/** `api.readTemplates`. @throws MatrixError 404 when a template is nowhere; Error when one is wrong */
export function readTemplates(
  { config, ids, logger }: Pick<MessagingParts, 'config' | 'ids' | 'logger'>,
  filenames: readonly string[],
  folder: string | undefined,
): readonly ModuleTemplate[] {
  if (filenames.length > maxTemplates) throw new RangeError(`At most ${maxTemplates} templates are read at once`);
  if (folder !== undefined && !isAbsolute(folder)) throw new RangeError('The path of a folder has to be absolute');
  const options = pagesOptionsOf(config);
  const folders = folder === undefined ? options.folders : [folder, ...options.folders];
  const pages = new Pages({ ...options, folders }, ids, logger);
  return filenames.map((name) => {
    if (!pages.has(name)) throw MatrixError.notFound(`There is no template ${name}`);
    return Object.freeze({ render: (variables: Readonly<Record<string, unknown>>) => pages.text(name, variables) });
  });
}
