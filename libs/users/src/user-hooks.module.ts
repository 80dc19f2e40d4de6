import { Module } from '@nestjs/common';
import { AccountModules } from './common/account-modules.js';
import { UserHooks } from './hooks.js';
import { UserPorts } from './ports.js';

const services = [AccountModules, UserHooks, UserPorts];

/** What others attach to accounts: hooks and ports of higher libs, callbacks of modules. */
@Module({ imports: [], providers: services, exports: services })
export class UserHooksModule {}
