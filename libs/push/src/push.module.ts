import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { PushRulesController } from './rules/push-rules.controller.js';
import { PushRulesService } from './rules/push-rules.service.js';

/** Push rules, counts and pushers; safe in any process. */
@Module({ imports: [UsersModule], providers: [PushRulesService], exports: [PushRulesService] })
export class PushModule {}

/** The client API of push rules and pushers. */
@Module({ imports: [PushModule], controllers: [PushRulesController] })
export class PushHttpModule {}
