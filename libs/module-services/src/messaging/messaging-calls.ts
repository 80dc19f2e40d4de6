import { Injectable } from '@nestjs/common';
import type { MessagingApi } from '@rookery/module-api';
import { callsOf } from '../calls-of.js';
import { ModuleMail } from './module-mail.js';
import { ModulePresence } from './module-presence.js';
import { ModulePush } from './module-push.js';

/** The part of the module API that is about telling people and devices. */
@Injectable()
export class MessagingCalls {
  readonly calls: MessagingApi;

  constructor(presence: ModulePresence, push: ModulePush, mail: ModuleMail) {
    this.calls = { ...callsOf(presence), ...callsOf(push), ...callsOf(mail) };
  }
}
