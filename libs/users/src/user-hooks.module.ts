import { Module } from '@nestjs/common';
import { AccountModules } from './common/account-modules.js';
import { UserHooks } from './hooks.js';

const services = [AccountModules, UserHooks];

/** What others attach to accounts: hooks of higher libs, callbacks of modules. */
@Module({ imports: [], providers: services, exports: services })
export class UserHooksModule {}
