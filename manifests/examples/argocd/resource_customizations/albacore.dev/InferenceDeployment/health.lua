-- Health of an InferenceDeployment, as kstatus (Flux, kubectl wait) sees it, with the messages that its controller wrote.
-- Degraded is what the controller cannot mend by itself (Stalled). A service without placement or over its objective is
-- Healthy, for it serves; the message says what is missing.
local status = obj.status or {}
if status.observedGeneration == nil then
  return {status = "Progressing", message = "Waiting for the controller"}
end
if status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "Waiting for the controller to see the last change"}
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local function is(kind, value)
  return conditions[kind] ~= nil and conditions[kind].status == value
end
local function message(kind)
  return conditions[kind].message or conditions[kind].reason or kind
end

if is("Stalled", "True") then
  return {status = "Degraded", message = message("Stalled")}
end
if is("Reconciling", "True") then
  return {status = "Progressing", message = message("Reconciling")}
end
if is("Ready", "True") then
  local text = message("Ready")
  for _, kind in ipairs({"Placed", "SLOMet"}) do
    if is(kind, "False") then
      text = text .. "; " .. kind .. " is False: " .. message(kind)
    end
  end
  return {status = "Healthy", message = text}
end
local spec = obj.spec or {}
if spec.replicas == 0 and spec.autoscaling == nil and (status.replicas or 0) == 0 then
  return {status = "Suspended", message = "Scaled to zero"}
end
if conditions.Ready ~= nil then
  return {status = "Progressing", message = message("Ready")}
end
return {status = "Progressing", message = "Waiting for condition Ready"}
